// CPU kernels of the exponential, logarithmic, trigonometric and special functors in gradus/tensor/ops/math.h.
#include "gradus/tensor/ops/math.h"

#include "gradus/tensor/cpu/elementwise/kernels.h"

namespace gradus::raw {
using namespace functors;  // NOLINT

template struct Unary<Exp>;
template struct Unary<Exp2>;
template struct Unary<Expm1>;
template struct Unary<Log>;
template struct Unary<Log2>;
template struct Unary<Log10>;
template struct Unary<Log1p>;
template struct Binary<LogAddExp>;
template struct Binary<Xlogy>;
template struct Unary<Sin>;
template struct Unary<Cos>;
template struct Unary<Tan>;
template struct Unary<Asin>;
template struct Unary<Acos>;
template struct Unary<Atan>;
template struct Binary<Atan2>;
template struct Unary<Sinh>;
template struct Unary<Cosh>;
template struct Unary<Asinh>;
template struct Unary<Acosh>;
template struct Unary<Atanh>;
template struct Unary<Erf>;
template struct Unary<Erfc>;
template struct Unary<Erfinv>;
template struct Unary<Lgamma>;
template struct Unary<Polygamma>;

}  // namespace gradus::raw
