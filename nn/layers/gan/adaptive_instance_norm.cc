// AdaptiveInstanceNorm layer of StyleGAN.
#include "gradus/nn/layers/gan/adaptive_instance_norm.h"

#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/norm/group_norm.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/nn/reparametrize.h"

namespace gradus::nn {

AdaptiveInstanceNorm::AdaptiveInstanceNorm(Module* parent, std::string name, Options options)
    : ModuleWith(parent, std::move(name), options) {
  equalized_lr(affine, {.gain = 1});
}
AdaptiveInstanceNorm::AdaptiveInstanceNorm(Options options) : ModuleWith(options) {
  equalized_lr(affine, {.gain = 1});
}

Tensor AdaptiveInstanceNorm::forward(const Tensor& x, const Tensor& w) {
  const int64_t C = options().channels;
  if (x.dim() != 4 || x.size(1) != C || w.dim() != 2 || w.size(0) != x.size(0))
    throw ShapeError("AdaptiveInstanceNorm", "expected x [N,", C, ",H,W] and w [N,", *options().style,
                     "], got ", describe(x), " and ", describe(w));
  const Tensor style = reshape(affine(w), {x.size(0), 2, C, 1, 1});
  return instance_norm(x, {}, {}, {}, {}, {.eps = options().eps}) * (select(style, 1, 0) + 1) +
         select(style, 1, 1);
}

template class ModuleWith<AdaptiveInstanceNormOptions>;
}  // namespace gradus::nn
