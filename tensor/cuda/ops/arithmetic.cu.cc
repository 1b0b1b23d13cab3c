#include "gradus/tensor/ops/arithmetic.h"

#include "gradus/tensor/cuda/ops/elementwise.h"

namespace gradus::cuda {
namespace {

using namespace functors;  // NOLINT
using raw::Binary, raw::Unary, raw::Ternary;

const Slots arithmetic{
    on_cuda<Binary<Add>>,      on_cuda<Binary<Sub>>,         on_cuda<Binary<Mul>>,
    on_cuda<Binary<Div>>,      on_cuda<Binary<AddScaled>>,   on_cuda<Ternary<AddCMul>>,
    on_cuda<Ternary<AddCDiv>>, on_cuda<Binary<Pow>>,         on_cuda<Binary<Maximum>>,
    on_cuda<Binary<Minimum>>,  on_cuda<Ternary<LerpTensor>>, on_cuda<Binary<Lerp>>,
    on_cuda<Unary<Neg>>,       on_cuda<Unary<Abs>>,          on_cuda<Unary<Sign>>,
    on_cuda<Unary<Square>>,    on_cuda<Unary<Reciprocal>>,   on_cuda<Unary<Sqrt>>,
    on_cuda<Unary<Rsqrt>>,     on_cuda<Binary<Hypot>>,
};

}  // namespace
}  // namespace gradus::cuda
