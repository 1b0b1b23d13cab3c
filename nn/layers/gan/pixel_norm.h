// PixelNorm: normalizes the channels of every pixel to a mean square of 1.
#pragma once

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct PixelNormOptions {
  double eps = 1e-8;
  bool eps_outside = false;  // true: y = x / (sqrt(mean of x^2) + eps), which has no gradient at x = 0
};
extern template class ModuleWith<PixelNormOptions, Layer>;

// y = x / sqrt(mean over the channels of x^2 + eps)
// Shapes: x [N,C] or [N,C,...] -> the same.
// Errors: ShapeError.
// Source: Karras et al., "Progressive growing of GANs", ICLR 2018.
class PixelNorm final : public LayerWith<PixelNormOptions> {
 public:
  using LayerWith::LayerWith;
  Tensor forward(const Tensor& x) override;
};

}  // namespace gradus::nn
