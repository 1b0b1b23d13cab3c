// The CUDA kernel of max and min along a dim with indices: x, row-major [outer, n, inner], is reduced over n
// to values and indices (i64), both [outer, inner]. The first of equal elements wins; NaN is the extremum.
#include "gradus/tensor/cuda/kernels/reduce_ops.h"
#include "gradus/tensor/cuda/ops/reduce.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/reduce.h"

namespace gradus::cuda {
namespace {

void extremum_cuda(const Tensor& values, const Tensor& indices, const Tensor& x, int64_t inner,
                   bool largest) {
  if (values.numel() == 0) return;
  const ReductionLayout layout{x, values.numel() / inner, x.numel() / values.numel(), inner};
  const cudaStream_t stream = stream_for({&values, &indices, &x});
  with_elements(x.dtype(), [&](auto type) {
    run_reduction(largest ? "max" : "min", values, layout,
                  Extremum<decltype(type)>{largest, static_cast<int64_t*>(indices.raw_ptr())}, stream);
  });
}

[[maybe_unused]] const bool is_set = (raw::extremum_kernel.cuda = &extremum_cuda, true);

}  // namespace
}  // namespace gradus::cuda
