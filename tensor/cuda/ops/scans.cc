// Registers the CUDA implementations of cumsum, cumprod, logcumsumexp, cummax, cummin and linear_recurrence
// with the kernel pointers of tensor/ops/reduce.h. Each allocates the workspace and calls its launch function
// of kernels/scans.h on the current stream of the tensors' device. Tensors are row-major [outer, n, inner].
#include "gradus/tensor/cuda/kernels/scans.h"

#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/reduce.h"

namespace gradus::cuda {
namespace {

ScanShape scan_of(const Tensor& x, bool reverse = false) {
  return {x.shape()[0], x.shape()[1], x.shape()[2], reverse};
}

void cumsum_cuda(const Tensor& out, const Tensor& x, bool reverse) {
  const cudaStream_t stream = stream_for({&out, &x});
  const ScanShape scan = scan_of(x, reverse);
  const Tensor workspace = workspace_for(x, scans_workspace(scan));
  cumsum("cumsum", view_of(out), view_of(x), scan, workspace.raw_ptr(), stream);
}

void cumprod_cuda(const Tensor& out, const Tensor& x, bool reverse) {
  const cudaStream_t stream = stream_for({&out, &x});
  const ScanShape scan = scan_of(x, reverse);
  const Tensor workspace = workspace_for(x, scans_workspace(scan));
  cumprod("cumprod", view_of(out), view_of(x), scan, workspace.raw_ptr(), stream);
}

void logcumsumexp_cuda(const Tensor& out, const Tensor& x) {
  const cudaStream_t stream = stream_for({&out, &x});
  const ScanShape scan = scan_of(x);
  const Tensor workspace = workspace_for(x, scans_workspace(scan));
  logcumsumexp("logcumsumexp", view_of(out), view_of(x), scan, workspace.raw_ptr(), stream);
}

void running_extremes_cuda(const Tensor& values, const Tensor& indices, const Tensor& x, bool largest) {
  const cudaStream_t stream = stream_for({&values, &indices, &x});
  const ScanShape scan = scan_of(x);
  const Tensor workspace = workspace_for(x, scans_workspace(scan));
  running_extremes(largest ? "cummax" : "cummin", view_of(values), indices.ptr<int64_t>(), view_of(x), scan,
                   largest, workspace.raw_ptr(), stream);
}

void linear_recurrence_cuda(const Tensor& out, const Tensor& a, const Tensor& b, bool reverse) {
  const cudaStream_t stream = stream_for({&out, &a, &b});
  const ScanShape scan = scan_of(b, reverse);
  const Tensor workspace = workspace_for(b, scans_workspace(scan));
  linear_recurrence("linear_recurrence", view_of(out), view_of(a), view_of(b), scan, workspace.raw_ptr(),
                    stream);
}

[[maybe_unused]] const bool is_set =
    (raw::cumsum_kernel.cuda = &cumsum_cuda, raw::cumprod_kernel.cuda = &cumprod_cuda,
     raw::logcumsumexp_kernel.cuda = &logcumsumexp_cuda,
     raw::running_extremes_kernel.cuda = &running_extremes_cuda,
     raw::linear_recurrence_kernel.cuda = &linear_recurrence_cuda, true);

}  // namespace
}  // namespace gradus::cuda
