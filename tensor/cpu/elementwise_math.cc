#include "gradus/tensor/cpu/pointwise_kernels.h"

namespace gradus::cpu {
namespace {

using namespace functors;  // NOLINT

const RegisterKernel kernels[] = {
    {raw::neg_kernel, DeviceType::kCPU, &unary<Neg>},
    {raw::abs_kernel, DeviceType::kCPU, &unary<Abs>},
    {raw::sign_kernel, DeviceType::kCPU, &unary<Sign>},
    {raw::square_kernel, DeviceType::kCPU, &unary<Square>},
    {raw::exp_kernel, DeviceType::kCPU, &unary<Exp>},
    {raw::expm1_kernel, DeviceType::kCPU, &unary<Expm1>},
    {raw::log_kernel, DeviceType::kCPU, &unary<Log>},
    {raw::log1p_kernel, DeviceType::kCPU, &unary<Log1p>},
    {raw::sqrt_kernel, DeviceType::kCPU, &unary<Sqrt>},
    {raw::rsqrt_kernel, DeviceType::kCPU, &unary<Rsqrt>},
    {raw::reciprocal_kernel, DeviceType::kCPU, &unary<Reciprocal>},
    {raw::sin_kernel, DeviceType::kCPU, &unary<Sin>},
    {raw::cos_kernel, DeviceType::kCPU, &unary<Cos>},
    {raw::erf_kernel, DeviceType::kCPU, &unary<Erf>},
    {raw::floor_kernel, DeviceType::kCPU, &unary<Floor>},
    {raw::ceil_kernel, DeviceType::kCPU, &unary<Ceil>},
    {raw::round_kernel, DeviceType::kCPU, &unary<Round>},
    {raw::clamp_kernel, DeviceType::kCPU, &unary<Clamp, double, double, int64_t, int64_t>},
    {raw::clamp_backward_kernel, DeviceType::kCPU, &binary<ClampBackward, double, double>},
};

}  // namespace
}  // namespace gradus::cpu
