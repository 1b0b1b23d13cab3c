#include "gradus/tensor/cpu/pointwise_kernels.h"
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

const RegisterKernel kernels[] = {
    {raw::tan_kernel, DeviceType::kCPU, &unary<Tan>},
    {raw::asin_kernel, DeviceType::kCPU, &unary<Asin>},
    {raw::acos_kernel, DeviceType::kCPU, &unary<Acos>},
    {raw::atan_kernel, DeviceType::kCPU, &unary<Atan>},
    {raw::sinh_kernel, DeviceType::kCPU, &unary<Sinh>},
    {raw::cosh_kernel, DeviceType::kCPU, &unary<Cosh>},
    {raw::asinh_kernel, DeviceType::kCPU, &unary<Asinh>},
    {raw::acosh_kernel, DeviceType::kCPU, &unary<Acosh>},
    {raw::atanh_kernel, DeviceType::kCPU, &unary<Atanh>},
    {raw::exp2_kernel, DeviceType::kCPU, &unary<Exp2>},
    {raw::log2_kernel, DeviceType::kCPU, &unary<Log2>},
    {raw::log10_kernel, DeviceType::kCPU, &unary<Log10>},
    {raw::erfc_kernel, DeviceType::kCPU, &unary<Erfc>},
    {raw::erfinv_kernel, DeviceType::kCPU, &unary<Erfinv>},
    {raw::lgamma_kernel, DeviceType::kCPU, &unary<Lgamma>},
    {raw::polygamma_kernel, DeviceType::kCPU, &unary<Polygamma, int64_t>},
    {raw::trunc_kernel, DeviceType::kCPU, &unary<Trunc>},
    {raw::isinf_kernel, DeviceType::kCPU, &unary<IsInf>},
    {raw::nan_to_num_kernel, DeviceType::kCPU, &unary<NanToNum, double, double, double>},
    {raw::selu_kernel, DeviceType::kCPU, &unary<Selu>},
    {raw::celu_kernel, DeviceType::kCPU, &unary<Celu, double>},
    {raw::mish_kernel, DeviceType::kCPU, &unary<Mish>},
    {raw::hardsigmoid_kernel, DeviceType::kCPU, &unary<HardSigmoid>},
    {raw::hardswish_kernel, DeviceType::kCPU, &unary<HardSwish>},
    {raw::hardshrink_kernel, DeviceType::kCPU, &unary<HardShrink, double>},
    {raw::softshrink_kernel, DeviceType::kCPU, &unary<SoftShrink, double>},
    {raw::threshold_kernel, DeviceType::kCPU, &unary<Threshold, double, double>},
    {raw::prelu_kernel, DeviceType::kCPU, &binary<Prelu>},
};

}  // namespace
}  // namespace gradus::cpu
