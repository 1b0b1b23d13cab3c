// ConditionalBatchNorm2d: looks up scale and shift [N, features] of the images' classes and applies them to the
// normalized images [N, features, H, W].
#include "gradus/nn/layers/gan/conditional_norm.h"

#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/nn/init.h"

namespace gradus::nn {

void ConditionalBatchNorm2d::set_initial_values() {
  init::constant_(weight_embedding.weight, options().plus_one ? 0 : 1);
  init::zeros_(bias_embedding.weight);
}

Tensor ConditionalBatchNorm2d::forward(const Tensor& x, const Tensor& labels) {
  if (x.dim() != 4 || labels.dim() != 1 || labels.size(0) != x.size(0))
    throw ShapeError("ConditionalBatchNorm2d", "expected x [N,", *options().features,
                     ",H,W] and labels [N], got ", describe(x), " and ", describe(labels));
  const Tensor normalized = norm(x);
  const Shape per_channel = {x.size(0), *options().features, 1, 1};
  const Tensor weight = reshape(weight_embedding(labels), per_channel);
  const Tensor scale = options().plus_one ? weight + 1 : weight;
  return normalized * scale + reshape(bias_embedding(labels), per_channel);
}

template class ModuleWith<ConditionalBatchNorm2dOptions>;

}  // namespace gradus::nn
