#include "gradus/tensor/cpu/elementwise/pointwise_kernels.h"
#include "gradus/tensor/kernel.h"

namespace gradus::cpu {
namespace {

using namespace functors;  // NOLINT

}  // namespace
}  // namespace gradus::cpu

namespace gradus::raw {
using namespace cpu;  // NOLINT

constinit UnarySlot relu_kernel{"relu", &unary<Relu>};
constinit UnarySlot sigmoid_kernel{"sigmoid", &unary<Sigmoid>};
constinit UnarySlot tanh_kernel{"tanh", &unary<Tanh>};
constinit UnarySlot silu_kernel{"silu", &unary<Silu>};
constinit UnarySlot logsigmoid_kernel{"logsigmoid", &unary<LogSigmoid>};
constinit UnarySlot gelu_kernel{"gelu", &unary<Gelu>};
constinit UnarySlot gelu_tanh_kernel{"gelu_tanh", &unary<GeluTanh>};
constinit UnarySlot1 leaky_relu_kernel{"leaky_relu", &unary<LeakyRelu, double>};
constinit UnarySlot1 elu_kernel{"elu", &unary<Elu, double>};
constinit UnarySlot2 softplus_kernel{"softplus", &unary<Softplus, double, double>};
constinit BinarySlot relu_backward_kernel{"relu_backward", &binary<ReluBackward>};
constinit BinarySlot sigmoid_backward_kernel{"sigmoid_backward", &binary<SigmoidBackward>};
constinit BinarySlot tanh_backward_kernel{"tanh_backward", &binary<TanhBackward>};
constinit BinarySlot silu_backward_kernel{"silu_backward", &binary<SiluBackward>};
constinit BinarySlot gelu_backward_kernel{"gelu_backward", &binary<GeluBackward>};
constinit BinarySlot gelu_tanh_backward_kernel{"gelu_tanh_backward", &binary<GeluTanhBackward>};
constinit BinarySlot1 leaky_relu_backward_kernel{"leaky_relu_backward", &binary<LeakyReluBackward, double>};
constinit BinarySlot1 elu_backward_kernel{"elu_backward", &binary<EluBackward, double>};

}  // namespace gradus::raw
