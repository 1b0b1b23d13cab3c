#include "gradus/tensor/cpu/elementwise/pointwise_kernels.h"

namespace gradus::raw {
using namespace functors;  // NOLINT

template struct Binary<Add>;
template struct Binary<Sub>;
template struct Binary<Mul>;
template struct Binary<Div>;
template struct Binary<Pow>;
template struct Binary<Remainder>;
template struct Binary<Maximum>;
template struct Binary<Minimum>;
template struct Binary<AddScaled, double, int64_t>;
template struct Binary<Lerp, double>;
template struct Ternary<LerpTensor>;
template struct Ternary<AddCMul, double>;
template struct Ternary<AddCDiv, double>;

}  // namespace gradus::raw
