// CPU kernels of the arithmetic functors in gradus/tensor/ops/arithmetic.h.
#include "gradus/tensor/ops/arithmetic.h"

#include "gradus/tensor/cpu/elementwise/kernels.h"

namespace gradus::raw {
using namespace functors;  // NOLINT

template struct Binary<Add>;
template struct Binary<Sub>;
template struct Binary<Mul>;
template struct Binary<Div>;
template struct Binary<AddScaled>;
template struct Ternary<AddCMul>;
template struct Ternary<AddCDiv>;
template struct Binary<Pow>;
template struct Binary<Remainder>;
template struct Binary<Fmod>;
template struct Binary<FloorDivide>;
template struct Binary<TruncDivide>;
template struct Binary<Maximum>;
template struct Binary<Minimum>;
template struct Unary<Clamp>;
template struct Binary<ClampBackward>;
template struct Ternary<LerpTensor>;
template struct Binary<Lerp>;
template struct Unary<Neg>;
template struct Unary<Abs>;
template struct Unary<Sign>;
template struct Unary<Square>;
template struct Unary<Reciprocal>;
template struct Unary<Sqrt>;
template struct Unary<Rsqrt>;
template struct Binary<Hypot>;
template struct Binary<Copysign>;
template struct Binary<Heaviside>;
template struct Unary<Floor>;
template struct Unary<Ceil>;
template struct Unary<Round>;
template struct Unary<Trunc>;

}  // namespace gradus::raw
