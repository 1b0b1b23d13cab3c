// The CUDA kernels of nonzero, masked_select and masked_scatter, for the slots of tensor/ops/index.h. The functions
// pass pointers, sizes and workspace to the launches in kernels/masks.h on the current stream of the tensors' device;
// the callers made tensors row-major and know the size of the result. A mask with too many true elements is thrown
// when the host next waits for the stream.
#include "gradus/tensor/cuda/kernels/masks.h"

#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/cuda/runtime/value_errors.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/index.h"
#include "gradus/tensor/ops/value_errors.h"

namespace gradus::cuda {
namespace {

void nonzero_cuda(const Tensor& out, const Tensor& x) {
  if (out.numel() == 0) return;
  const cudaStream_t stream = stream_for({&out, &x});
  const Tensor workspace = workspace_for(x, mask_workspace(x.numel()));
  MaskShape shape{x.dim(), {}};
  for (int d = 0; d < x.dim(); ++d) shape.size[size_t(d)] = x.shape()[d];
  nonzero("nonzero", out.ptr<int64_t>(), x.ptr<bool>(), x.numel(), shape, workspace.raw_ptr(), stream);
}

// limit is the size of the result, or of src.
void throw_small_selection(const ReportedValue& v) { raw::throw_small_selection(v.as_integer(), v.limit); }
void throw_small_source(const ReportedValue& v) { raw::throw_small_source(v.as_integer(), v.limit); }

void masked_select_cuda(const Tensor& out, const Tensor& x, const Tensor& mask) {
  const cudaStream_t stream = stream_for({&out, &x, &mask});
  const int64_t n = mask.numel(), size = out.numel();
  const Tensor workspace = workspace_for(mask, mask_workspace(n));
  masked_select("masked_select", out.raw_ptr(), size, x.raw_ptr(), size_of(x.dtype()), mask.ptr<bool>(), n,
                workspace.raw_ptr(), reports_of(mask, stream, &throw_small_selection, size), stream);
}

void masked_scatter_cuda(const Tensor& out, const Tensor& x, const Tensor& mask, const Tensor& src) {
  const cudaStream_t stream = stream_for({&out, &x, &mask, &src});
  const int64_t n = mask.numel(), count = src.numel();
  const Tensor workspace = workspace_for(mask, mask_workspace(n));
  masked_scatter("masked_scatter", out.raw_ptr(), x.defined() ? x.raw_ptr() : nullptr, size_of(out.dtype()),
                 mask.ptr<bool>(), n, src.raw_ptr(), count, workspace.raw_ptr(),
                 reports_of(mask, stream, &throw_small_source, count), stream);
}

[[maybe_unused]] const bool is_set =
    (raw::nonzero_kernel.cuda = &nonzero_cuda, raw::masked_select_kernel.cuda = &masked_select_cuda,
     raw::masked_scatter_kernel.cuda = &masked_scatter_cuda, true);

}  // namespace
}  // namespace gradus::cuda
