#include "gradus/tensor/cpu/pointwise_kernels.h"

namespace gradus::cpu {
namespace {

using namespace functors;  // NOLINT

void where(const Tensor& out, const Tensor& condition, const Tensor& a, const Tensor& b) {
  const Where f;
  with_compute_type<Where>("where", out.dtype(), [&]<class T>() {
    const Tensor* in[] = {&condition, &a, &b};
    run_pointwise(
        {&pointwise_chunk<Where, T, uint8_t, T, T>, &f, dtype_v<T>, {DType::kBool, dtype_v<T>, dtype_v<T>}},
        out, in);
  });
}

const RegisterKernel kernels[] = {
    {raw::eq_kernel, DeviceType::kCPU, &binary<Eq>},
    {raw::ne_kernel, DeviceType::kCPU, &binary<Ne>},
    {raw::lt_kernel, DeviceType::kCPU, &binary<Lt>},
    {raw::le_kernel, DeviceType::kCPU, &binary<Le>},
    {raw::gt_kernel, DeviceType::kCPU, &binary<Gt>},
    {raw::ge_kernel, DeviceType::kCPU, &binary<Ge>},
    {raw::logical_and_kernel, DeviceType::kCPU, &binary<LogicalAnd>},
    {raw::logical_or_kernel, DeviceType::kCPU, &binary<LogicalOr>},
    {raw::logical_not_kernel, DeviceType::kCPU, &unary<LogicalNot>},
    {raw::isnan_kernel, DeviceType::kCPU, &unary<IsNaN>},
    {raw::isfinite_kernel, DeviceType::kCPU, &unary<IsFinite>},
    {raw::where_kernel, DeviceType::kCPU, &where},
};

}  // namespace
}  // namespace gradus::cpu
