#include "gradus/tensor/cpu/pointwise_kernels.h"

namespace gradus::cpu {
namespace {

using namespace functors;  // NOLINT

// clang-format off
const RegisterKernel kernels[] = {
    {raw::add_kernel, DeviceType::kCPU, &binary<Add>},
    {raw::sub_kernel, DeviceType::kCPU, &binary<Sub>},
    {raw::mul_kernel, DeviceType::kCPU, &binary<Mul>},
    {raw::div_kernel, DeviceType::kCPU, &binary<Div>},
    {raw::pow_kernel, DeviceType::kCPU, &binary<Pow>},
    {raw::remainder_kernel, DeviceType::kCPU, &binary<Remainder>},
    {raw::maximum_kernel, DeviceType::kCPU, &binary<Maximum>},
    {raw::minimum_kernel, DeviceType::kCPU, &binary<Minimum>},
    {raw::add_scaled_kernel, DeviceType::kCPU, &binary<AddScaled, double, int64_t>},
    {raw::lerp_kernel, DeviceType::kCPU, &binary<Lerp, double>},
    {raw::lerp_tensor_kernel, DeviceType::kCPU, &ternary<LerpTensor>},
    {raw::addcmul_kernel, DeviceType::kCPU, &ternary<AddCMul, double>},
    {raw::addcdiv_kernel, DeviceType::kCPU, &ternary<AddCDiv, double>},
};
// clang-format on

}  // namespace
}  // namespace gradus::cpu
