// Registers the element-wise CUDA kernels (ops/elementwise.h) of the comparison, logical and bitwise functors
// in tensor/ops/comparison.h, and of where(), when the program starts.
#include "gradus/tensor/ops/comparison.h"

#include "gradus/tensor/cuda/ops/elementwise.h"

namespace gradus::cuda {
namespace {

using namespace functors;  // NOLINT

// out = condition ? a : b. The inputs broadcast to out; condition is bool, a and b have any dtype.
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
