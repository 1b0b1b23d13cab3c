// NoiseInjection: adds noise with a learned strength to the pixels of an image.
#pragma once

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
// Errors: ShapeError unless x fits strength and noise; StateError for kFixed without noise_const.
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

}  // namespace gradus::nn
