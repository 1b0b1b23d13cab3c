// NoiseInjection: x + strength n, with strength and noise n cast to x's dtype. BiasLeakyReLU: bias, leaky
// ReLU, gain and clamp as separate differentiable ops.
#include "gradus/nn/layers/gan/noise.h"

#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/nn/placement.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/random.h"

namespace gradus::nn {

Tensor NoiseInjection::initial_strength(const NoiseInjectionOptions& o) {
  if (o.channels < 1) throw ValueError("NoiseInjection", "expected channels >= 1, got ", o.channels);
  return zeros({o.channels}, {.device = internal::initial_device()});
}
Tensor NoiseInjection::initial_noise(const NoiseInjectionOptions& o) {
  if (o.size.h < 0 || o.size.w < 0) throw ValueError("NoiseInjection", "expected a size >= 0, got ", o.size);
  if (o.size.h * o.size.w == 0) return {};
  return randn({1, 1, o.size.h, o.size.w}, {.device = internal::initial_device()});
}

Tensor NoiseInjection::forward(const Tensor& x) {
  if (mode == NoiseMode::kNone) return x;
  if (x.dim() != 4) throw ShapeError("NoiseInjection", "expected x [N,C,H,W], got ", describe(x));
  if (mode == NoiseMode::kRandom)
    return forward(x, randn({x.size(0), 1, x.size(2), x.size(3)}, {x.dtype(), x.device()}));
  if (!noise_const.defined())
    throw StateError("NoiseInjection", "there is no fixed noise: give the layer its size when it is made");
  return forward(x, noise_const);
}

Tensor NoiseInjection::forward(const Tensor& x, const Tensor& n) {
  const bool fits = x.dim() == 4 && n.dim() == 4 && (n.size(0) == 1 || n.size(0) == x.size(0)) &&
                    n.size(1) == 1 && n.size(2) == x.size(2) && n.size(3) == x.size(3) &&
                    (strength.size(0) == 1 || strength.size(0) == x.size(1));
  if (!fits)
    throw ShapeError("NoiseInjection",
                     "expected x [N,C,H,W] and noise [N,1,H,W], with one strength or C, got ", describe(x),
                     ", ", describe(n), " and ", describe(strength));
  return x + gradus::to(reshape(strength, {1, -1, 1, 1}), x.dtype()) * gradus::to(n, x.dtype());
}

template class ModuleWith<NoiseInjectionOptions, Layer>;

Tensor BiasLeakyReLU::initial_bias(const BiasLeakyReLUOptions& o) {
  if (o.channels < 1) throw ValueError("BiasLeakyReLU", "expected channels >= 1, got ", *o.channels);
  if (o.clamp && !(*o.clamp > 0)) throw ValueError("BiasLeakyReLU", "expected clamp > 0, got ", *o.clamp);
  return zeros({o.channels}, {.device = internal::initial_device()});
}

Tensor BiasLeakyReLU::forward(const Tensor& x) {
  const Options& o = options();
  if (x.dim() < 2 || x.size(1) != o.channels)
    throw ShapeError("BiasLeakyReLU", "expected x [N,", *o.channels, "] or [N,", *o.channels, ",...], got ",
                     describe(x));
  Shape per_channel = Dims::filled(x.dim(), 1);
  per_channel[1] = o.channels;
  const Tensor b = gradus::to(reshape(bias, per_channel), x.dtype());
  const Tensor y = leaky_relu(x + (o.lr_mul == 1 ? b : b * o.lr_mul), o.negative_slope) * o.gain;
  return o.clamp ? clamp(y, -*o.clamp, *o.clamp) : y;
}

template class ModuleWith<BiasLeakyReLUOptions, Layer>;

}  // namespace gradus::nn
