#include "gradus/tensor/cpu/elementwise/pointwise_kernels.h"
#include "gradus/tensor/kernel.h"

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

}  // namespace
}  // namespace gradus::cpu

namespace gradus::raw {
using namespace cpu;  // NOLINT

constinit BinarySlot eq_kernel{"eq", &binary<Eq>};
constinit BinarySlot ne_kernel{"ne", &binary<Ne>};
constinit BinarySlot lt_kernel{"lt", &binary<Lt>};
constinit BinarySlot le_kernel{"le", &binary<Le>};
constinit BinarySlot gt_kernel{"gt", &binary<Gt>};
constinit BinarySlot ge_kernel{"ge", &binary<Ge>};
constinit BinarySlot logical_and_kernel{"logical_and", &binary<LogicalAnd>};
constinit BinarySlot logical_or_kernel{"logical_or", &binary<LogicalOr>};
constinit UnarySlot logical_not_kernel{"logical_not", &unary<LogicalNot>};
constinit UnarySlot isnan_kernel{"isnan", &unary<IsNaN>};
constinit UnarySlot isfinite_kernel{"isfinite", &unary<IsFinite>};
constinit TernarySlot where_kernel{"where", &cpu::where};

}  // namespace gradus::raw
