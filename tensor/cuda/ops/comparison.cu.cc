// CUDA kernels of the comparison, logical and bitwise functors in gradus/tensor/ops/comparison.h, and of where.
#include "gradus/tensor/ops/comparison.h"

#include "gradus/tensor/cuda/ops/elementwise.h"

namespace gradus::cuda {
namespace {

using namespace functors;  // NOLINT

void where(const Tensor& out, const Tensor& condition, const Tensor& a, const Tensor& b) {
  if (out.numel() == 0) return;
  raw::with_compute_type<Where>("where", out.dtype(), [&]<class T>() {
    const ElementwiseArgs o = operands_of({&out, &condition, &a, &b});
    elementwise<T, T, uint8_t, T, T>("where", Where(), o.index, o.views.data(), o.stream);
  });
}

[[maybe_unused]] const bool is_set = (fill_slots(ComparisonSlots()), raw::where_kernel.cuda = &where, true);

}  // namespace
}  // namespace gradus::cuda
