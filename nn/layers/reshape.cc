// Forwards of Unflatten, ChannelShuffle, Unfold and Fold: each applies the op of its name to its options.
// ChannelShuffle is reshape, transpose, reshape, and unlike the op channel_shuffle accepts x [N,C].
#include "gradus/nn/layers/reshape.h"

#include "gradus/tensor/op_call.h"

namespace gradus::nn {

Tensor Unflatten::forward(const Tensor& x) {
  const OpCall call("Unflatten");  // errors of unflatten name the layer
  return unflatten(x, options().dim, options().sizes);
}

template class ModuleWith<FlattenOptions, Layer>;
template class ModuleWith<UnflattenOptions, Layer>;

Tensor ChannelShuffle::forward(const Tensor& x) {
  const int64_t groups = options().groups;
  if (groups < 1) throw ValueError("ChannelShuffle", "expected groups >= 1, got ", groups);
  if (x.dim() < 2 || x.size(1) % groups != 0)
    throw ShapeError("ChannelShuffle", "expected x [N,C,...] with C a multiple of ", groups, ", got ",
                     describe(x));
  Shape grouped = x.shape();
  grouped[1] = x.size(1) / groups;
  grouped.insert(1, groups);
  return reshape(transpose(reshape(x, grouped), 1, 2), x.shape());
}

template class ModuleWith<ChannelShuffleOptions, Layer>;
template class ModuleWith<PixelShuffleOptions, Layer>;

Tensor Unfold::forward(const Tensor& x) { return unfold(x, options()); }

Tensor Fold::forward(const Tensor& x) {
  const Options& o = options();
  return fold(x, o.output,
              {.kernel = *o.kernel, .stride = o.stride, .padding = o.padding, .dilation = o.dilation});
}

Tensor UpsamplingNearest2d::forward(const Tensor& x) {
  if (x.dim() != 4) throw ShapeError("UpsamplingNearest2d", "expected x [N,C,H,W], got ", describe(x));
  return interpolate(x, {.size = options().size, .scale_factor = options().scale_factor});
}
Tensor UpsamplingBilinear2d::forward(const Tensor& x) {
  return interpolate(x, {.size = options().size,
                         .scale_factor = options().scale_factor,
                         .mode = Interpolation::kBilinear,
                         .align_corners = true});
}

template class ModuleWith<FoldOptions, Layer>;
template class ModuleWith<UnfoldOptions, Layer>;

}  // namespace gradus::nn
