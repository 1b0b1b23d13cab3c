// AdaptiveInstanceNorm: instance norm whose scale and shift are computed from a style vector.
#pragma once

#include "gradus/nn/layers/linear.h"

namespace gradus::nn {

struct AdaptiveInstanceNormOptions {
  Required<int64_t, "channels"> channels;
  Required<int64_t, "style"> style;  // size of the style vector w
  double eps = 1e-8;
};
extern template class ModuleWith<AdaptiveInstanceNormOptions>;

// y = instance_norm(x) (s0 + 1) + s1, where [s0, s1] = affine(w). The layer affine has an equalized learning
// rate with gain 1.
// Shapes: x [N,channels,H,W], w [N,style] -> [N,channels,H,W].
// Errors: ShapeError, DTypeError.
// Source: Karras et al., "A style-based generator architecture for GANs", CVPR 2019.
class AdaptiveInstanceNorm final : public ModuleWith<AdaptiveInstanceNormOptions> {
 public:
  AdaptiveInstanceNorm(Module* parent, std::string name, Options options);
  explicit AdaptiveInstanceNorm(Options options);

  Linear affine{this, "affine", {.in = *options().style, .out = 2 * *options().channels}};

  Tensor forward(const Tensor& x, const Tensor& w);
  Tensor operator()(const Tensor& x, const Tensor& w) { return forward(x, w); }
};

}  // namespace gradus::nn
