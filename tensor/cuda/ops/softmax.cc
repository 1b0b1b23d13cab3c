// CUDA kernels of softmax: tensors in, launches of kernels/softmax.h out.
#include "gradus/tensor/ops/softmax.h"

#include "gradus/tensor/cuda/kernels/softmax.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/kernel.h"

namespace gradus::cuda {
namespace {

void softmax_cuda(const Tensor& y, const Tensor& x, int64_t n, int64_t inner, bool log) {
  if (x.numel() == 0) return;
  const cudaStream_t stream = stream_for({&y, &x});
  dispatch_floating(x.dtype(), "softmax", [&]<class T>() {
    softmax("softmax", y.ptr<T>(), x.ptr<T>(), x.numel() / (n * inner), n, inner, log, stream);
  });
}

void softmax_backward_cuda(const Tensor& dx, const Tensor& dy, const Tensor& y, int64_t n, int64_t inner,
                           bool log) {
  if (y.numel() == 0) return;
  const cudaStream_t stream = stream_for({&dx, &dy, &y});
  dispatch_floating(y.dtype(), "softmax_backward", [&]<class T>() {
    softmax_backward("softmax_backward", dx.ptr<T>(), dy.ptr<T>(), y.ptr<T>(), y.numel() / (n * inner), n,
                     inner, log, stream);
  });
}

[[maybe_unused]] const bool is_set = (raw::softmax_kernel.cuda = &softmax_cuda,
                                      raw::softmax_backward_kernel.cuda = &softmax_backward_cuda, true);

}  // namespace
}  // namespace gradus::cuda
