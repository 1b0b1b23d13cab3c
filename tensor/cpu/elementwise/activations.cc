#include "gradus/tensor/cpu/elementwise/pointwise_kernels.h"

namespace gradus::raw {
using namespace functors;  // NOLINT

template struct Unary<Relu>;
template struct Unary<Sigmoid>;
template struct Unary<Tanh>;
template struct Unary<Silu>;
template struct Unary<LogSigmoid>;
template struct Unary<Gelu>;
template struct Unary<GeluTanh>;
template struct Unary<LeakyRelu, double>;
template struct Unary<Elu, double>;
template struct Unary<Softplus, double, double>;
template struct Binary<ReluBackward>;
template struct Binary<SigmoidBackward>;
template struct Binary<TanhBackward>;
template struct Binary<SiluBackward>;
template struct Binary<GeluBackward>;
template struct Binary<GeluTanhBackward>;
template struct Binary<LeakyReluBackward, double>;
template struct Binary<EluBackward, double>;

}  // namespace gradus::raw
