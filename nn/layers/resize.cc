#include "gradus/nn/layers/resize.h"

#include "gradus/autograd/ops/images/pixel_shuffle.h"

namespace gradus::nn {
namespace {

template <class O> std::string window_repr(const O& o) {
  std::string text = concat("kernel=", *o.kernel);
  if (o.stride != Size2(1)) text += concat(", stride=", o.stride);
  if (o.padding != Size2(0)) text += concat(", padding=", o.padding);
  if (o.dilation != Size2(1)) text += concat(", dilation=", o.dilation);
  return text;
}

}  // namespace

Tensor Upsample::forward(const Tensor& x) {
  const Options& o = options();
  return interpolate(
      x, {.size = o.size, .scale_factor = o.scale_factor, .mode = o.mode, .align_corners = o.align_corners});
}
std::string Upsample::extra_repr() const {
  const char* modes[] = {"nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear", "area"};
  const Options& o = options();
  std::string text;
  for (const double f : o.scale_factor) text += concat(text.empty() ? "scale_factor={" : ", ", f);
  if (o.scale_factor.empty())
    text = concat("size=", o.size);
  else
    text += "}";
  return concat(text, ", mode=", modes[int(o.mode)], o.align_corners ? ", align_corners=true" : "");
}

Tensor PixelShuffle::forward(const Tensor& x) { return pixel_shuffle(x, options().factor); }
std::string PixelShuffle::extra_repr() const { return concat("factor=", *options().factor); }
Tensor PixelUnshuffle::forward(const Tensor& x) { return pixel_unshuffle(x, options().factor); }
std::string PixelUnshuffle::extra_repr() const { return concat("factor=", *options().factor); }

Tensor Unfold::forward(const Tensor& x) { return unfold(x, options()); }
std::string Unfold::extra_repr() const { return window_repr(options()); }

Tensor Fold::forward(const Tensor& x) {
  const Options& o = options();
  return fold(x, o.output,
              {.kernel = *o.kernel, .stride = o.stride, .padding = o.padding, .dilation = o.dilation});
}
std::string Fold::extra_repr() const {
  return concat("output=", *options().output, ", ", window_repr(options()));
}

}  // namespace gradus::nn
