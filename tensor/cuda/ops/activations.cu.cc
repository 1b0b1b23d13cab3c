#include "gradus/tensor/ops/activations.h"

#include "gradus/tensor/cuda/ops/elementwise.h"

namespace gradus::cuda {
namespace {

using namespace functors;  // NOLINT
using raw::Binary, raw::Unary;

const Slots activations{
    on_cuda<Unary<Relu>>,
    on_cuda<Binary<ReluBackward>>,
    on_cuda<Unary<LeakyRelu>>,
    on_cuda<Binary<LeakyReluBackward>>,
    on_cuda<Binary<Prelu>>,
    on_cuda<Unary<Threshold>>,
    on_cuda<Unary<Elu>>,
    on_cuda<Binary<EluBackward>>,
    on_cuda<Unary<Celu>>,
    on_cuda<Unary<Selu>>,
    on_cuda<Unary<Sigmoid>>,
    on_cuda<Binary<SigmoidBackward>>,
    on_cuda<Unary<LogSigmoid>>,
    on_cuda<Unary<Tanh>>,
    on_cuda<Binary<TanhBackward>>,
    on_cuda<Unary<Softplus>>,
    on_cuda<Unary<Silu>>,
    on_cuda<Binary<SiluBackward>>,
    on_cuda<Unary<Mish>>,
    on_cuda<Unary<Gelu>>,
    on_cuda<Binary<GeluBackward>>,
    on_cuda<Unary<GeluTanh>>,
    on_cuda<Binary<GeluTanhBackward>>,
    on_cuda<Unary<HardSigmoid>>,
    on_cuda<Unary<HardSwish>>,
    on_cuda<Unary<HardShrink>>,
    on_cuda<Unary<SoftShrink>>,
};

}  // namespace
}  // namespace gradus::cuda
