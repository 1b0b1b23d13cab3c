// BiasLeakyReLU layer of StyleGAN2.
#include "gradus/nn/layers/gan/bias_leaky_relu.h"

#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/copy.h"
#include "gradus/autograd/ops/view.h"
#include "gradus/nn/placement.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::nn {

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
