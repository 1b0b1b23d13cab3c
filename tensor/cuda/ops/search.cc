// The CUDA kernels of searchsorted and histc, for the slots of tensor/ops/sort.h: pass pointers and sizes to
// the launches in kernels/sort/search.h on the current stream of the tensors' device. Callers made tensors
// row-major. A range of histc that is not finite is thrown when the host next waits for the stream.
#include "gradus/tensor/cuda/kernels/sort/search.h"

#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/cuda/runtime/value_errors.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/ops/sort.h"
#include "gradus/tensor/ops/value_errors.h"

namespace gradus::cuda {
namespace {

void searchsorted_cuda(const Tensor& out, const Tensor& sorted, const Tensor& values, bool right) {
  const cudaStream_t stream = stream_for({&out, &sorted, &values});
  searchsorted("searchsorted", out.ptr<int64_t>(), view_of(sorted), view_of(values), values.shape()[0],
               sorted.shape()[1], values.shape()[1], right, stream);
}

void throw_infinite_range(const ReportedValue& v) { raw::throw_infinite_range(v.as_double()); }

void histc_cuda(const Tensor& out, const Tensor& x, double low, double high) {
  HistogramRange range{low, high};
  const bool has_range = x.dtype() == DType::kF64 ? low != high : float(low) != float(high);
  Tensor x_low, x_high;
  if (!has_range && x.numel() > 0) {
    x_low = raw::amin(x), x_high = raw::amax(x);
    range.x_low = x_low.raw_ptr(), range.x_high = x_high.raw_ptr();
  }
  const Tensor counts = zeros(out.shape(), {.dtype = DType::kI64, .device = x.device()});
  const cudaStream_t stream = stream_for({&out, &x});
  histc("histc", view_of(out), counts.ptr<int64_t>(), view_of(x), x.numel(), out.numel(), range,
        reports_of(x, stream, &throw_infinite_range, 0), stream);
}

[[maybe_unused]] const bool is_set =
    (raw::searchsorted_kernel.cuda = &searchsorted_cuda, raw::histc_kernel.cuda = &histc_cuda, true);

}  // namespace
}  // namespace gradus::cuda
