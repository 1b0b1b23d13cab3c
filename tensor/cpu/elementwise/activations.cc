// CPU kernels of the activation functors in gradus/tensor/ops/activations.h.
#include "gradus/tensor/ops/activations.h"

#include "gradus/tensor/cpu/elementwise/kernels.h"

namespace gradus::raw {
using namespace functors;  // NOLINT

template struct Unary<Relu>;
template struct Binary<ReluBackward>;
template struct Unary<LeakyRelu>;
template struct Binary<LeakyReluBackward>;
template struct Binary<Prelu>;
template struct Unary<Threshold>;
template struct Unary<Elu>;
template struct Binary<EluBackward>;
template struct Unary<Celu>;
template struct Unary<Selu>;
template struct Unary<Sigmoid>;
template struct Binary<SigmoidBackward>;
template struct Unary<LogSigmoid>;
template struct Unary<Tanh>;
template struct Binary<TanhBackward>;
template struct Unary<Softplus>;
template struct Unary<Silu>;
template struct Binary<SiluBackward>;
template struct Unary<Mish>;
template struct Unary<Gelu>;
template struct Binary<GeluBackward>;
template struct Unary<GeluTanh>;
template struct Binary<GeluTanhBackward>;
template struct Unary<HardSigmoid>;
template struct Unary<HardSwish>;
template struct Unary<HardShrink>;
template struct Unary<SoftShrink>;

}  // namespace gradus::raw
