// The CUDA kernels of tril, triu and repeat_interleave, for the slots of tensor/ops/arrange.h. The functions pass
// pointers and sizes to the launches in kernels/arrange.h on the current stream of the tensors' device; the callers
// made tensors row-major. An invalid count is thrown when the host next waits for the stream.
#include "gradus/tensor/ops/arrange.h"

#include "gradus/tensor/cuda/kernels/arrange.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/cuda/runtime/value_errors.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/value_errors.h"

namespace gradus::cuda {
namespace {

void triangle_cuda(const Tensor& out, const Tensor& x, int64_t diagonal, bool upper) {
  triangle(upper ? "triu" : "tril", out.raw_ptr(), x.raw_ptr(), size_of(x.dtype()), x.numel(), x.size(-2),
           x.size(-1), diagonal, upper, stream_for({&out, &x}));
}

// per_row is the number of counts, limit the size of the result.
void throw_invalid_counts(const ReportedValue& v) {
  if (v.position == 2 * v.per_row) raw::throw_other_count_sum(v.as_integer(), v.limit);
  if (v.position % 2) raw::throw_overflowing_counts();
  raw::throw_negative_count(v.position / 2, v.as_integer());
}

void repeat_cuda(const Tensor& out, const Tensor& counts) {
  const int64_t size = out.numel(), n = counts.numel();
  const cudaStream_t stream = stream_for({&out, &counts});
  const Tensor workspace = workspace_for(out, repeat_workspace(n));
  repeat("repeat_interleave", out.ptr<int64_t>(), size, counts.ptr<int64_t>(), n, workspace.raw_ptr(),
         reports_of(out, stream, &throw_invalid_counts, size, n), stream);
}

[[maybe_unused]] const bool is_set =
    (raw::triangle_kernel.cuda = &triangle_cuda, raw::repeat_kernel.cuda = &repeat_cuda, true);

}  // namespace
}  // namespace gradus::cuda
