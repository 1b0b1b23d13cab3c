#include "gradus/tensor/cpu/pointwise_kernels.h"

namespace gradus::cpu {
namespace {

using namespace functors;  // NOLINT

const RegisterKernel kernels[] = {
    {raw::relu_kernel, DeviceType::kCPU, &unary<Relu>},
    {raw::sigmoid_kernel, DeviceType::kCPU, &unary<Sigmoid>},
    {raw::tanh_kernel, DeviceType::kCPU, &unary<Tanh>},
    {raw::silu_kernel, DeviceType::kCPU, &unary<Silu>},
    {raw::logsigmoid_kernel, DeviceType::kCPU, &unary<LogSigmoid>},
    {raw::gelu_kernel, DeviceType::kCPU, &unary<Gelu>},
    {raw::gelu_tanh_kernel, DeviceType::kCPU, &unary<GeluTanh>},
    {raw::leaky_relu_kernel, DeviceType::kCPU, &unary<LeakyRelu, double>},
    {raw::elu_kernel, DeviceType::kCPU, &unary<Elu, double>},
    {raw::softplus_kernel, DeviceType::kCPU, &unary<Softplus, double, double>},
    {raw::relu_backward_kernel, DeviceType::kCPU, &binary<ReluBackward>},
    {raw::sigmoid_backward_kernel, DeviceType::kCPU, &binary<SigmoidBackward>},
    {raw::tanh_backward_kernel, DeviceType::kCPU, &binary<TanhBackward>},
    {raw::silu_backward_kernel, DeviceType::kCPU, &binary<SiluBackward>},
    {raw::gelu_backward_kernel, DeviceType::kCPU, &binary<GeluBackward>},
    {raw::gelu_tanh_backward_kernel, DeviceType::kCPU, &binary<GeluTanhBackward>},
    {raw::leaky_relu_backward_kernel, DeviceType::kCPU, &binary<LeakyReluBackward, double>},
    {raw::elu_backward_kernel, DeviceType::kCPU, &binary<EluBackward, double>},
};

}  // namespace
}  // namespace gradus::cpu
