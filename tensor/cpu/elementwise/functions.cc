#include "gradus/tensor/cpu/elementwise/pointwise_kernels.h"

namespace gradus::raw {
using namespace functors;  // NOLINT

template struct Unary<Tan>;
template struct Unary<Asin>;
template struct Unary<Acos>;
template struct Unary<Atan>;
template struct Unary<Sinh>;
template struct Unary<Cosh>;
template struct Unary<Asinh>;
template struct Unary<Acosh>;
template struct Unary<Atanh>;
template struct Unary<Exp2>;
template struct Unary<Log2>;
template struct Unary<Log10>;
template struct Unary<Erfc>;
template struct Unary<Erfinv>;
template struct Unary<Lgamma>;
template struct Unary<Polygamma, int64_t>;
template struct Unary<Trunc>;
template struct Unary<IsInf>;
template struct Unary<NanToNum, double, double, double>;
template struct Unary<Selu>;
template struct Unary<Celu, double>;
template struct Unary<Mish>;
template struct Unary<HardSigmoid>;
template struct Unary<HardSwish>;
template struct Unary<HardShrink, double>;
template struct Unary<SoftShrink, double>;
template struct Unary<Threshold, double, double>;
template struct Binary<Prelu>;

}  // namespace gradus::raw
