// BiasLeakyReLU: what follows StyleGAN2's convolutions.
#pragma once

#include <numbers>
#include <optional>

#include "gradus/nn/layer.h"

namespace gradus::nn {

struct BiasLeakyReLUOptions {
  Required<int64_t, "channels"> channels;
  double negative_slope = 0.2;
  double gain = std::numbers::sqrt2;  // keeps the variance
  double lr_mul = 1;                  // of the bias
  std::optional<double> clamp = {};   // the result's largest magnitude, for f16: 256 gain
};
extern template class ModuleWith<BiasLeakyReLUOptions, Layer>;

// y = gain leaky_relu(x + lr_mul b), then clamped
// Shapes: x [N,channels] or [N,channels,...] -> the same; bias [channels], which starts at 0.
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
