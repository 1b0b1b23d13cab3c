// Sets the CUDA kernels of raw::softmax_kernel and raw::softmax_backward_kernel (softmax and log_softmax). The
// functions here only unpack tensors; the device code is in kernels/softmax.cu.cc. Tensors have one floating
// dtype, are dense and of one layout, seen as [outer, n, inner] with the softmax over n; the caller allocates
// y and dx. Work is queued on the current stream of the tensors' device.
#include "gradus/tensor/ops/softmax.h"

#include "gradus/tensor/cuda/kernels/softmax.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/kernel.h"

namespace gradus::cuda {
namespace {

// y = e^x / sum(e^x), or with `log` the logarithm of that.
void softmax_cuda(const Tensor& y, const Tensor& x, int64_t n, int64_t inner, bool log) {
  if (x.numel() == 0) return;
  const cudaStream_t stream = stream_for({&y, &x});
  dispatch_all_floating(x.dtype(), [&]<class T>() {
    softmax("softmax", y.ptr<T>(), x.ptr<T>(), x.numel() / (n * inner), n, inner, log, stream);
  });
}

// dx = y (dy - sum(dy y)), or with `log`, for y = log_softmax(x): dx = dy - e^y sum(dy).
void softmax_backward_cuda(const Tensor& dx, const Tensor& dy, const Tensor& y, int64_t n, int64_t inner,
                           bool log) {
  if (y.numel() == 0) return;
  const cudaStream_t stream = stream_for({&dx, &dy, &y});
  dispatch_all_floating(y.dtype(), [&]<class T>() {
    softmax_backward("softmax_backward", dx.ptr<T>(), dy.ptr<T>(), y.ptr<T>(), y.numel() / (n * inner), n,
                     inner, log, stream);
  });
}

[[maybe_unused]] const bool is_set = (raw::softmax_kernel.cuda = &softmax_cuda,
                                      raw::softmax_backward_kernel.cuda = &softmax_backward_cuda, true);

}  // namespace
}  // namespace gradus::cuda
