// Layers of StyleGAN after a convolution: NoiseInjection adds noise with a learned strength to the pixels of
// an image; BiasLeakyReLU adds a bias and applies leaky ReLU and gain, the fused_leaky_relu of StyleGAN2.
#pragma once

#include <numbers>
#include <optional>

#include "gradus/nn/layer.h"

namespace gradus::nn {

enum class NoiseMode {
  kRandom,  // new noise for each image and call
  kFixed,   // the buffer noise_const
  kNone,    // no noise
};

struct NoiseInjectionOptions {
  Size2 size = 0;        // size of noise_const; 0: there is no noise_const
  int64_t channels = 1;  // size of strength: 1, or x's number of channels
};
extern template class ModuleWith<NoiseInjectionOptions, Layer>;

// y = x + strength n with n ~ N(0,1) per pixel, the same for all channels.
// Shapes: x [N,C,H,W] -> the same; strength [channels], initially 0; noise_const [1,1,size.h,size.w].
// Errors: ShapeError unless x fits strength and noise; StateError for kFixed without noise_const; ValueError,
// from the constructor, for channels < 1 or a negative size.
// Source: Karras et al., "A style-based generator architecture for GANs", CVPR 2019.
class NoiseInjection final : public LayerWith<NoiseInjectionOptions> {
 public:
  using LayerWith::LayerWith;

  Parameter strength{this, "strength", initial_strength(options())};
  Buffer noise_const{this, "noise_const", initial_noise(options())};
  NoiseMode mode = NoiseMode::kRandom;

  Tensor forward(const Tensor& x) override;
  // The same with the caller's noise n [N,1,H,W] or [1,1,H,W].
  Tensor forward(const Tensor& x, const Tensor& n);

 private:
  static Tensor initial_strength(const NoiseInjectionOptions& o);
  static Tensor initial_noise(const NoiseInjectionOptions& o);
};

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
// Errors: ShapeError unless x.size(1) is channels; ValueError, from the constructor, for channels < 1 or
// clamp <= 0.
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
