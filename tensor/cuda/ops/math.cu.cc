#include "gradus/tensor/ops/math.h"

#include "gradus/tensor/cuda/ops/elementwise.h"

namespace gradus::cuda {

// Angles that the formula does not reduce are the library's affair, as on the CPU.
GRADUS_HD float library_value(const functors::Sin&, float x) { return std::sin(x); }
GRADUS_HD float library_value(const functors::Cos&, float x) { return std::cos(x); }
GRADUS_HD float library_value(const functors::Tan&, float x) { return std::tan(x); }
template <class F> struct OfAngle : F {
  template <class T> GRADUS_HD T operator()(T x) const {
    if constexpr (std::is_same_v<T, float>)
      if (F::is_far(x)) return library_value(*this, x);
    return F::operator()(x);
  }
};
template <std::derived_from<functors::OnAngles> F> struct OnCuda<raw::Unary<F>> {
  static void run(const Tensor& out, const Tensor& x, F f) { compute(OfAngle<F>{f}, out, x); }
};

namespace {

using namespace functors;  // NOLINT
using raw::Binary, raw::Unary;

// Those that compute in f64 by functions of the host (erfinv, lgamma, polygamma) are not there yet.
const Slots mathematics{
    on_cuda<Unary<Exp>>,    on_cuda<Unary<Exp2>>,  on_cuda<Unary<Expm1>>, on_cuda<Unary<Log>>,
    on_cuda<Unary<Log2>>,   on_cuda<Unary<Log10>>, on_cuda<Unary<Log1p>>, on_cuda<Binary<LogAddExp>>,
    on_cuda<Binary<Xlogy>>, on_cuda<Unary<Sin>>,   on_cuda<Unary<Cos>>,   on_cuda<Unary<Tan>>,
    on_cuda<Unary<Asin>>,   on_cuda<Unary<Acos>>,  on_cuda<Unary<Atan>>,  on_cuda<Binary<Atan2>>,
    on_cuda<Unary<Sinh>>,   on_cuda<Unary<Cosh>>,  on_cuda<Unary<Asinh>>, on_cuda<Unary<Acosh>>,
    on_cuda<Unary<Atanh>>,  on_cuda<Unary<Erf>>,   on_cuda<Unary<Erfc>>,
};

}  // namespace
}  // namespace gradus::cuda
