#include "gradus/tensor/cpu/elementwise/pointwise_kernels.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/special_functions.h"

namespace gradus::cpu {
namespace {

using namespace functors;  // NOLINT

// Computed in double, element by element.
struct Erfinv : OnFloats {
  template <class T>
  T operator()(T x) const {
    return T(m::erfinv(x));
  }
};
struct Lgamma : OnFloats {
  template <class T>
  T operator()(T x) const {
    int sign;
    return T(::lgamma_r(double(x), &sign));
  }
};
struct Polygamma : OnFloats {
  int64_t n;
  template <class T>
  T operator()(T x) const {
    return T(m::polygamma(int(n), x));
  }
};

}  // namespace
}  // namespace gradus::cpu

namespace gradus::raw {
using namespace cpu;  // NOLINT

constinit UnarySlot tan_kernel{"tan", &unary<Tan>};
constinit UnarySlot asin_kernel{"asin", &unary<Asin>};
constinit UnarySlot acos_kernel{"acos", &unary<Acos>};
constinit UnarySlot atan_kernel{"atan", &unary<Atan>};
constinit UnarySlot sinh_kernel{"sinh", &unary<Sinh>};
constinit UnarySlot cosh_kernel{"cosh", &unary<Cosh>};
constinit UnarySlot asinh_kernel{"asinh", &unary<Asinh>};
constinit UnarySlot acosh_kernel{"acosh", &unary<Acosh>};
constinit UnarySlot atanh_kernel{"atanh", &unary<Atanh>};
constinit UnarySlot exp2_kernel{"exp2", &unary<Exp2>};
constinit UnarySlot log2_kernel{"log2", &unary<Log2>};
constinit UnarySlot log10_kernel{"log10", &unary<Log10>};
constinit UnarySlot erfc_kernel{"erfc", &unary<Erfc>};
constinit UnarySlot erfinv_kernel{"erfinv", &unary<Erfinv>};
constinit UnarySlot lgamma_kernel{"lgamma", &unary<Lgamma>};
constinit decltype(polygamma_kernel) polygamma_kernel{"polygamma", &unary<Polygamma, int64_t>};
constinit UnarySlot trunc_kernel{"trunc", &unary<Trunc>};
constinit UnarySlot isinf_kernel{"isinf", &unary<IsInf>};
constinit decltype(nan_to_num_kernel) nan_to_num_kernel{"nan_to_num",
                                                        &unary<NanToNum, double, double, double>};
constinit UnarySlot selu_kernel{"selu", &unary<Selu>};
constinit UnarySlot1 celu_kernel{"celu", &unary<Celu, double>};
constinit UnarySlot mish_kernel{"mish", &unary<Mish>};
constinit UnarySlot hardsigmoid_kernel{"hardsigmoid", &unary<HardSigmoid>};
constinit UnarySlot hardswish_kernel{"hardswish", &unary<HardSwish>};
constinit UnarySlot1 hardshrink_kernel{"hardshrink", &unary<HardShrink, double>};
constinit UnarySlot1 softshrink_kernel{"softshrink", &unary<SoftShrink, double>};
constinit UnarySlot2 threshold_kernel{"threshold", &unary<Threshold, double, double>};
constinit BinarySlot prelu_kernel{"prelu", &binary<Prelu>};

}  // namespace gradus::raw
