#include "gradus/tensor/ops/comparison.h"

#include "gradus/tensor/cuda/ops/elementwise.h"

namespace gradus::cuda {
namespace {

using namespace functors;  // NOLINT
using raw::Binary, raw::Unary;

void where(const Tensor& out, const Tensor& condition, const Tensor& a, const Tensor& b) {
  if (out.numel() == 0) return;
  raw::with_compute_type<Where>("where", out.dtype(), [&]<class T>() {
    const Operands o = operands_of({&out, &condition, &a, &b});
    elementwise<T, T, uint8_t, T, T>("where", Where(), o.index, o.views.data(), o.stream);
  });
}

const Slots comparison{
    on_cuda<Binary<Eq>>,         on_cuda<Binary<Ne>>,
    on_cuda<Binary<Lt>>,         on_cuda<Binary<Le>>,
    on_cuda<Binary<Gt>>,         on_cuda<Binary<Ge>>,
    on_cuda<Binary<LogicalAnd>>, on_cuda<Binary<LogicalOr>>,
    on_cuda<Unary<LogicalNot>>,  on_cuda<Unary<IsNaN>>,
    on_cuda<Unary<IsFinite>>,    on_cuda<Unary<IsInf>>,
    on_cuda<Unary<NanToNum>>,    on_cuda<Binary<BitwiseAnd>>,
    on_cuda<Binary<BitwiseOr>>,  on_cuda<Binary<BitwiseXor>>,
    on_cuda<Unary<BitwiseNot>>,  on_cuda<Binary<ShiftLeft>>,
    on_cuda<Binary<ShiftRight>>, [] { raw::where_kernel.cuda = &where; },
};

}  // namespace
}  // namespace gradus::cuda
