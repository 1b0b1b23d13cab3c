#include "gradus/tensor/ops/arithmetic.h"

#include "gradus/tensor/cuda/ops/elementwise.h"

namespace gradus::cuda {
namespace {

using namespace functors;  // NOLINT
using raw::Binary, raw::Unary;

const Slots rounding{
    on_cuda<Binary<Remainder>>,     on_cuda<Binary<Fmod>>,     on_cuda<Binary<FloorDivide>>,
    on_cuda<Binary<TruncDivide>>,   on_cuda<Unary<Floor>>,     on_cuda<Unary<Ceil>>,
    on_cuda<Unary<Round>>,          on_cuda<Unary<Trunc>>,     on_cuda<Unary<Clamp>>,
    on_cuda<Binary<ClampBackward>>, on_cuda<Binary<Copysign>>, on_cuda<Binary<Heaviside>>,
};

}  // namespace
}  // namespace gradus::cuda
