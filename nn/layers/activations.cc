// Forwards of the activation layers that are not an OpLayer. RReLU draws its slopes in training from the
// Context's generator and treats them as constants. Parameters are made on internal::initial_device().
#include "gradus/nn/layers/activations.h"

#include <utility>

#include "gradus/autograd/ops/arithmetic.h"
#include "gradus/autograd/ops/comparison.h"
#include "gradus/autograd/ops/random.h"
#include "gradus/nn/init.h"
#include "gradus/nn/placement.h"

namespace gradus::nn {

Tensor ReLU::forward(const Tensor& x) { return relu(x); }
Tensor ReLU::forward_temporary(Tensor&& x) { return relu(std::move(x)); }

Tensor PReLU::initial() const {
  if (options().num_parameters < 1)
    throw ValueError("PReLU", "expected num_parameters >= 1, got ", options().num_parameters);
  return init::constant_(empty({options().num_parameters}, {.device = internal::initial_device()}),
                         options().init);
}
Tensor PReLU::forward(const Tensor& x) { return prelu(x, weight); }

Tensor RReLU::forward(const Tensor& x) {
  const Options& o = options();
  if (!(o.lower <= o.upper))
    throw ValueError("RReLU", "expected lower <= upper, got ", o.lower, " and ", o.upper);
  if (!is_training()) return leaky_relu(x, (o.lower + o.upper) / 2);
  const Tensor slopes = empty(x.shape(), {x.dtype(), x.device()});
  uniform_(slopes, o.lower, o.upper);
  return where(ge(x, 0), x, x * slopes);
}

Tensor Threshold::forward(const Tensor& x) {
  return threshold(x, {.threshold = options().threshold, .value = options().value});
}

Tensor Softmin::forward(const Tensor& x) { return softmax(-x, options().dim); }
Tensor Softmax2d::forward(const Tensor& x) {
  if (x.dim() != 3 && x.dim() != 4)
    throw ShapeError("Softmax2d", "expected x [N,C,H,W] or [C,H,W], got ", describe(x));
  return softmax(x, -3);
}

template class ModuleWith<ELUOptions, Layer>;
template class ModuleWith<GELUOptions, Layer>;
template class ModuleWith<GLUOptions, Layer>;
template class ModuleWith<HardtanhOptions, Layer>;
template class ModuleWith<LeakyReLUOptions, Layer>;
template class ModuleWith<NoOptions, Layer>;
template class ModuleWith<PReLUOptions, Layer>;
template class ModuleWith<RReLUOptions, Layer>;
template class ModuleWith<ShrinkOptions, Layer>;
template class ModuleWith<SoftmaxOptions, Layer>;
template class ModuleWith<SoftplusOptions, Layer>;
template class ModuleWith<ThresholdOptions, Layer>;
}  // namespace gradus::nn
