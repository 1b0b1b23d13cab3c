// The CUDA kernels of sort, topk, kthvalue, median, mode and of the row order of unique, for the slots of
// tensor/ops/sort.h: pass pointers, sizes and workspace to the launches in kernels/sort/sort.h on the current
// stream of the tensors' device. Callers made tensors row-major.
#include "gradus/tensor/ops/sort.h"

#include <limits>

#include "gradus/tensor/cuda/kernels/sort/sort.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/kernel.h"

namespace gradus::cuda {
namespace {

void sort_cuda(const Tensor& values, const Tensor& indices, const Tensor& x, bool descending) {
  if (values.numel() == 0) return;
  const cudaStream_t stream = stream_for({&values, &indices, &x});
  const SortShape s{x.shape()[0], x.shape()[1], x.shape()[2], values.shape()[1]};
  const Tensor workspace = workspace_for(x, sort_workspace(s));
  sort("sort", view_of(values), indices.ptr<int64_t>(), view_of(x), s, descending, workspace.raw_ptr(),
       stream);
}

void select_cuda(const Tensor& values, const Tensor& indices, const Tensor& x, raw::Selection what,
                 int64_t k) {
  const SelectShape s{x.shape()[0], x.shape()[1], x.shape()[2], what, k};
  if (what == raw::Selection::kMode && s.n > std::numeric_limits<uint32_t>::max())
    throw ShapeError("mode", "expected fewer than 2^32 elements along the dim, got ", s.n);
  const cudaStream_t stream = stream_for({&values, &indices, &x});
  const Tensor workspace = workspace_for(x, select_workspace(s));
  select("kthvalue", view_of(values), indices.ptr<int64_t>(), view_of(x), s, workspace.raw_ptr(), stream);
}

void sort_rows_cuda(const Tensor& order, const Tensor& x) {
  const cudaStream_t stream = stream_for({&order, &x});
  const int64_t n = x.shape()[0], m = x.shape()[1];
  const Tensor workspace = workspace_for(x, sort_rows_workspace(n));
  sort_rows("unique", order.ptr<int64_t>(), view_of(x), n, m, workspace.raw_ptr(), stream);
}

[[maybe_unused]] const bool is_set =
    (raw::sort_kernel.cuda = &sort_cuda, raw::select_kernel.cuda = &select_cuda,
     raw::sort_rows_kernel.cuda = &sort_rows_cuda, true);

}  // namespace
}  // namespace gradus::cuda
