// The CUDA kernels of gather, scatter, index_select, index_put, flat_index and one_hot, for the slots of
// tensor/ops/index.h, which has the formulas. The functions pass pointers, sizes and workspace to the launches in
// kernels/index.h; the callers made tensors row-major and indices i64. The first invalid index is thrown when the
// host next waits for the stream. Work is queued on the current stream of the tensors' device.
#include "gradus/tensor/ops/index.h"

#include "gradus/tensor/cuda/kernels/index.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/cuda/runtime/value_errors.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/op_call.h"
#include "gradus/tensor/ops/value_errors.h"

namespace gradus::cuda {
namespace {

// Throws the IndexError for an invalid index: per_row is the indexed dim, limit its size.
void throw_invalid_index(const ReportedValue& v) {
  raw::throw_invalid_index("index", v.as_integer(), static_cast<int>(v.per_row), v.limit);
}

// Where the next launch reports invalid indices along `d`. Outside of a public op, errors name d.op, as on the CPU.
ValueReports reports_of_indices(const Tensor& index, cudaStream_t stream, const raw::IndexedDim& d) {
  const OpCall call(d.op);
  return reports_of(index, stream, &throw_invalid_index, d.n, d.dim);
}

void gather_cuda(const Tensor& out, const Tensor& x, const Tensor& index, raw::IndexedDim d) {
  if (out.numel() == 0) return;
  const cudaStream_t stream = stream_for({&out, &x, &index});
  const IndexedShape s{d.outer, d.n, d.inner, index.numel() / (d.outer * d.inner)};
  gather("gather", view_of(out), x.raw_ptr(), index.ptr<int64_t>(), s, reports_of_indices(index, stream, d),
         stream);
}

void scatter_cuda(const Tensor& out, const Tensor& index, const Tensor& src, raw::IndexedDim d,
                  raw::WriteMode mode) {
  if (index.numel() == 0) return;
  const cudaStream_t stream = stream_for({&out, &index, &src});
  const IndexedShape s{d.outer, d.n, d.inner, index.numel() / (d.outer * d.inner)};
  const Tensor workspace = workspace_for(out, write_workspace(index.numel()));
  scatter("scatter", view_of(out), index.ptr<int64_t>(), src.raw_ptr(), s, mode, workspace.raw_ptr(),
          reports_of_indices(index, stream, d), stream);
}

void index_select_cuda(const Tensor& out, const Tensor& x, const Tensor& index, raw::IndexedDim d) {
  const cudaStream_t stream = stream_for({&out, &x, &index});
  const ValueReports reports = reports_of_indices(index, stream, d);
  const auto* const indices = index.ptr<int64_t>();
  if (out.numel() == 0) return check_indices("index_select", indices, index.numel(), d.n, reports, stream);
  index_select("index_select", view_of(out), x.raw_ptr(), indices, {d.outer, d.n, d.inner, index.numel()},
               reports, stream);
}

void index_put_cuda(const Tensor& out, const Tensor& index, const Tensor& src, raw::IndexedDim d,
                    raw::WriteMode mode) {
  const cudaStream_t stream = stream_for({&out, &index, &src});
  const ValueReports reports = reports_of_indices(index, stream, d);
  const auto* const indices = index.ptr<int64_t>();
  if (src.numel() == 0) return check_indices("index_put", indices, index.numel(), d.n, reports, stream);
  const Tensor workspace = workspace_for(out, write_workspace(index.numel()));
  index_put("index_put", view_of(out), indices, src.raw_ptr(), {d.outer, d.n, d.inner, index.numel()}, d.skip,
            mode, workspace.raw_ptr(), reports, stream);
}

void flat_index_cuda(const Tensor& out, const Tensor& index, raw::IndexedDim d, int64_t stride) {
  const cudaStream_t stream = stream_for({&out, &index});
  flat_index("index", out.ptr<int64_t>(), index.ptr<int64_t>(), index.numel(), d.n, stride,
             reports_of_indices(index, stream, d), stream);
}

void one_hot_cuda(const Tensor& out, const Tensor& index) {
  const cudaStream_t stream = stream_for({&out, &index});
  const raw::IndexedDim classes{.n = out.shape().back(), .dim = out.dim() - 1, .op = "one_hot"};
  one_hot("one_hot", view_of(out), index.ptr<int64_t>(), index.numel(), classes.n,
          reports_of_indices(index, stream, classes), stream);
}

[[maybe_unused]] const bool is_set =
    (raw::gather_kernel.cuda = &gather_cuda, raw::scatter_kernel.cuda = &scatter_cuda,
     raw::index_select_kernel.cuda = &index_select_cuda, raw::index_put_kernel.cuda = &index_put_cuda,
     raw::flat_index_kernel.cuda = &flat_index_cuda, raw::one_hot_kernel.cuda = &one_hot_cuda, true);

}  // namespace
}  // namespace gradus::cuda
