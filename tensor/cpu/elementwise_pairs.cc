#include "gradus/tensor/cpu/pointwise_kernels.h"

namespace gradus::cpu {
namespace {

using namespace functors;  // NOLINT

const RegisterKernel kernels[] = {
    {raw::atan2_kernel, DeviceType::kCPU, &binary<Atan2>},
    {raw::fmod_kernel, DeviceType::kCPU, &binary<Fmod>},
    {raw::floor_divide_kernel, DeviceType::kCPU, &binary<FloorDivide>},
    {raw::trunc_divide_kernel, DeviceType::kCPU, &binary<TruncDivide>},
    {raw::hypot_kernel, DeviceType::kCPU, &binary<Hypot>},
    {raw::copysign_kernel, DeviceType::kCPU, &binary<Copysign>},
    {raw::xlogy_kernel, DeviceType::kCPU, &binary<Xlogy>},
    {raw::logaddexp_kernel, DeviceType::kCPU, &binary<LogAddExp>},
    {raw::heaviside_kernel, DeviceType::kCPU, &binary<Heaviside>},
    {raw::bitwise_and_kernel, DeviceType::kCPU, &binary<BitwiseAnd>},
    {raw::bitwise_or_kernel, DeviceType::kCPU, &binary<BitwiseOr>},
    {raw::bitwise_xor_kernel, DeviceType::kCPU, &binary<BitwiseXor>},
    {raw::bitwise_not_kernel, DeviceType::kCPU, &unary<BitwiseNot>},
    {raw::bitwise_left_shift_kernel, DeviceType::kCPU, &binary<ShiftLeft>},
    {raw::bitwise_right_shift_kernel, DeviceType::kCPU, &binary<ShiftRight>},
};

}  // namespace
}  // namespace gradus::cpu
