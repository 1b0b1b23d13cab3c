// Defines the CPU kernels of the comparison, logical and bitwise functors in tensor/ops/comparison.h: the template
// of kernels.h, instantiated for each slot in ComparisonSlots. `where` has its own kernel, for its bool operand.
#include "gradus/tensor/ops/comparison.h"

#include "gradus/tensor/cpu/elementwise/kernels.h"

namespace gradus::cpu {
namespace {

using namespace functors;  // NOLINT

// out = condition ? a : b for each element. condition is bool; a and b are converted to out's compute type.
void where(const Tensor& out, const Tensor& condition, const Tensor& a, const Tensor& b) {
  const Where f;
  raw::with_compute_type<Where>("where", out.dtype(), [&]<class T>() {
    const Tensor* in[] = {&condition, &a, &b};
    run_elementwise(
        {&elementwise_chunk<Where, T, uint8_t, T, T>, &f, dtype_v<T>, {DType::kBool, dtype_v<T>, dtype_v<T>}},
        out, in);
  });
}

}  // namespace
}  // namespace gradus::cpu

namespace gradus::raw {
using namespace functors;  // NOLINT

template struct DefineSlots<ComparisonSlots>;
constinit decltype(where_kernel) where_kernel{"where", &cpu::where};

}  // namespace gradus::raw
