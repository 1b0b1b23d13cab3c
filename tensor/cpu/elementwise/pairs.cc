#include "gradus/tensor/cpu/elementwise/pointwise_kernels.h"

namespace gradus::raw {
using namespace functors;  // NOLINT

template struct Binary<Atan2>;
template struct Binary<Fmod>;
template struct Binary<FloorDivide>;
template struct Binary<TruncDivide>;
template struct Binary<Hypot>;
template struct Binary<Copysign>;
template struct Binary<Xlogy>;
template struct Binary<LogAddExp>;
template struct Binary<Heaviside>;
template struct Binary<BitwiseAnd>;
template struct Binary<BitwiseOr>;
template struct Binary<BitwiseXor>;
template struct Unary<BitwiseNot>;
template struct Binary<ShiftLeft>;
template struct Binary<ShiftRight>;

}  // namespace gradus::raw
