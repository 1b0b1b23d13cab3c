// The CUDA kernel of cumsum, for the slot of tensor/ops/reduce.h: passes pointers, sizes and workspace to the launch in
// kernels/cumsum.h on the current stream of the tensors' device. The caller made tensors row-major [outer, n, inner].
#include "gradus/tensor/cuda/kernels/cumsum.h"

#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/reduce.h"

namespace gradus::cuda {
namespace {

void cumsum_cuda(const Tensor& out, const Tensor& x, bool reverse) {
  if (x.numel() == 0) return;
  const cudaStream_t stream = stream_for({&out, &x});
  const int64_t outer = x.shape()[0], n = x.shape()[1], inner = x.shape()[2];
  const Tensor workspace = workspace_for(x, cumsum_workspace(outer, n, inner));
  cumsum("cumsum", view_of(out), view_of(x), outer, n, inner, reverse, workspace.raw_ptr(), stream);
}

[[maybe_unused]] const bool is_set = (raw::cumsum_kernel.cuda = &cumsum_cuda, true);

}  // namespace
}  // namespace gradus::cuda
