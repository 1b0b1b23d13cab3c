// Linear layer.
#include "gradus/nn/layers/linear.h"

#include <cmath>

#include "gradus/autograd/ops/activations.h"
#include "gradus/autograd/ops/linalg/matmul.h"
#include "gradus/nn/init.h"
#include "gradus/nn/placement.h"

namespace gradus::nn {

Tensor Linear::initial_weight(const LinearOptions& o) {
  if (o.in < 0 || o.out < 0)
    throw ValueError("Linear", "expected in, out >= 0, got ", *o.in, " and ", *o.out);
  return init::kaiming_uniform_(empty({o.out, o.in}, {.device = internal::initial_device()}),
                                {.a = std::sqrt(5.0)});
}

Tensor Linear::initial_bias(const LinearOptions& o) {
  if (!o.bias) return {};
  const double bound = o.in > 0 ? 1 / std::sqrt(double(o.in)) : 0;
  return init::uniform_(empty({o.out}, {.device = internal::initial_device()}),
                        {.low = -bound, .high = bound});
}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight, bias); }

Tensor Linear::relu(const Tensor& x) {
  if (has_hooks()) return gradus::relu((*this)(x));
  return call([&] { return linear_relu(x, weight, bias); });
}

template class ModuleWith<LinearOptions, Layer>;
}  // namespace gradus::nn
