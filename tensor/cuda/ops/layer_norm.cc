// Sets the CUDA kernels of raw::layer_norm_kernel and raw::layer_norm_backward_kernel (layer_norm and
// rms_norm). The functions here only unpack tensors and allocate the workspace; the device code is in
// kernels/norm/layer_norm.cu.cc. Tensors are f32 or f64, row-major and not empty; the caller allocates the
// results. Work is queued on the current stream of the tensors' device.
#include "gradus/tensor/ops/norm/layer_norm.h"

#include "gradus/tensor/cuda/kernels/norm/layer_norm.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/kernel.h"

namespace gradus::cuda {
namespace {

void layer_norm_cuda(const Tensor& y, const Tensor& stats, const Tensor& x, const Tensor& weight,
                     const Tensor& bias, const raw::LayerNormSpec& spec) {
  const int64_t rows = stats.size(0), n = x.numel() / rows;
  const cudaStream_t stream = stream_for({&y, &stats, &x, &weight, &bias});
  dispatch_floating(x.dtype(), "layer_norm", [&]<class T>() {
    layer_norm("layer_norm", y.ptr<T>(), stats.ptr<double>(), x.ptr<T>(), or_null<T>(weight),
               or_null<T>(bias), rows, n, spec.eps, spec.centered, stream);
  });
}

void layer_norm_backward_cuda(const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                              const Tensor& x, const Tensor& stats, const Tensor& weight,
                              const raw::LayerNormSpec& spec) {
  const int64_t rows = stats.size(0), n = x.numel() / rows;
  const cudaStream_t stream = stream_for({&dx, &dweight, &dbias, &dy, &x, &stats, &weight});
  const Tensor workspace = workspace_for(x, layer_norm_backward_workspace(rows, n));
  dispatch_floating(x.dtype(), "layer_norm_backward", [&]<class T>() {
    layer_norm_backward("layer_norm_backward", dx.ptr<T>(), dweight.ptr<T>(), dbias.ptr<T>(), dy.ptr<T>(),
                        x.ptr<T>(), stats.ptr<double>(), or_null<T>(weight), rows, n, spec.centered,
                        workspace.raw_ptr(), stream);
  });
}

[[maybe_unused]] const bool is_set = (raw::layer_norm_kernel.cuda = &layer_norm_cuda,
                                      raw::layer_norm_backward_kernel.cuda = &layer_norm_backward_cuda, true);

}  // namespace
}  // namespace gradus::cuda
