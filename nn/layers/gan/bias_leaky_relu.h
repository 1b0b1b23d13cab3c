// BiasLeakyReLU: bias, leaky ReLU and gain after a convolution, the fused_leaky_relu of StyleGAN2.
#pragma once

#include <numbers>
#include <optional>

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct BiasLeakyReLUOptions {
  Required<int64_t, "channels"> channels;
  double negative_slope = 0.2;
  double gain = std::numbers::sqrt2;  // sqrt(2) preserves the variance
  double lr_mul = 1;                  // factor of the bias, which multiplies its learning rate
  std::optional<double> clamp = {};   // clamps the result to [-clamp, clamp]; StyleGAN2 uses 256 gain for f16
};
extern template class ModuleWith<BiasLeakyReLUOptions, Layer>;

// y = gain leaky_relu(x + lr_mul bias), clamped if `clamp` is set.
// Shapes: x [N,channels] or [N,channels,...] -> the same; bias [channels], initially 0.
// Errors: ShapeError.
// Source: Karras et al., "Analyzing and improving the image quality of StyleGAN", CVPR 2020.
class BiasLeakyReLU final : public LayerWith<BiasLeakyReLUOptions> {
 public:
  using LayerWith::LayerWith;
  Parameter bias{this, "bias", initial_bias(options())};
  Tensor forward(const Tensor& x) override;

 private:
  static Tensor initial_bias(const BiasLeakyReLUOptions& o);
};

}  // namespace gradus::nn
