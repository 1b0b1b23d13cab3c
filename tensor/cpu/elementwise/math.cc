#include "gradus/tensor/cpu/elementwise/pointwise_kernels.h"

namespace gradus::raw {
using namespace functors;  // NOLINT

template struct Unary<Neg>;
template struct Unary<Abs>;
template struct Unary<Sign>;
template struct Unary<Square>;
template struct Unary<Exp>;
template struct Unary<Expm1>;
template struct Unary<Log>;
template struct Unary<Log1p>;
template struct Unary<Sqrt>;
template struct Unary<Rsqrt>;
template struct Unary<Reciprocal>;
template struct Unary<Sin>;
template struct Unary<Cos>;
template struct Unary<Erf>;
template struct Unary<Floor>;
template struct Unary<Ceil>;
template struct Unary<Round>;
template struct Unary<Clamp, double, double, int64_t, int64_t>;
template struct Binary<ClampBackward, double, double>;

}  // namespace gradus::raw
