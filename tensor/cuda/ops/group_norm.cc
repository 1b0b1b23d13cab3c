// Sets the CUDA kernels of group norm, its gradients and channel_window_sum, for the slots of
// tensor/ops/norm/group_norm.h. The functions here only unpack tensors and allocate the workspace; the device code is
// in kernels/norm/group_norm.cu.cc. Tensors are f32 or f64, images channels-last and not empty; the caller allocates the
// results. Work is queued on the current stream of the tensors' device.
#include "gradus/tensor/ops/norm/group_norm.h"

#include "gradus/tensor/cuda/kernels/norm/group_norm.h"
#include "gradus/tensor/cuda/ops/operands.h"
#include "gradus/tensor/kernel.h"

namespace gradus::cuda {
namespace {

template <class T>
GroupNorm<T> problem_of(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                        const raw::GroupNormSpec& spec) {
  return {x.size(0),
          x.numel() / (x.size(0) * x.size(1)),
          x.size(1),
          spec.groups,
          x.ptr<T>(),
          or_null<T>(weight),
          mean.ptr<double>(),
          var.ptr<double>(),
          spec.eps};
}
void group_norm_cuda(const Tensor& y, const Tensor& mean, const Tensor& var, const Tensor& x,
                     const Tensor& weight, const Tensor& bias, const raw::GroupNormSpec& spec) {
  const cudaStream_t stream = stream_for({&y, &mean, &var, &x, &weight, &bias});
  dispatch_floating(x.dtype(), "group_norm", [&]<class T>() {
    const GroupNorm<T> s = problem_of<T>(x, mean, var, weight, spec);
    const Tensor workspace = workspace_for(x, group_norm_workspace<T>(s.samples, s.rows, s.channels));
    group_norm("group_norm", s, y.ptr<T>(), or_null<T>(bias), workspace.raw_ptr(), stream);
  });
}

void group_norm_backward_cuda(const Tensor& dx, const Tensor& dweight, const Tensor& dbias, const Tensor& dy,
                              const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                              const raw::GroupNormSpec& spec) {
  const cudaStream_t stream = stream_for({&dx, &dweight, &dbias, &dy, &x, &mean, &var, &weight});
  dispatch_floating(x.dtype(), "group_norm_backward", [&]<class T>() {
    const GroupNorm<T> s = problem_of<T>(x, mean, var, weight, spec);
    const Tensor workspace =
        workspace_for(x, group_norm_backward_workspace<T>(s.samples, s.rows, s.channels));
    group_norm_backward("group_norm_backward", s, dx.ptr<T>(), dweight.ptr<T>(), dbias.ptr<T>(), dy.ptr<T>(),
                        workspace.raw_ptr(), stream);
  });
}

void group_norm_double_backward_cuda(const Tensor& ddy, const Tensor& dx, const Tensor& dweight,
                                     const Tensor& ddx, const Tensor& ddweight, const Tensor& ddbias,
                                     const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& var,
                                     const Tensor& weight, const raw::GroupNormSpec& spec) {
  const cudaStream_t stream =
      stream_for({&ddy, &dx, &dweight, &ddx, &ddweight, &ddbias, &dy, &x, &mean, &var, &weight});
  dispatch_floating(x.dtype(), "group_norm_double_backward", [&]<class T>() {
    const GroupNorm<T> s = problem_of<T>(x, mean, var, weight, spec);
    const Tensor workspace =
        workspace_for(x, group_norm_double_backward_workspace<T>(s.samples, s.rows, s.channels));
    group_norm_double_backward("group_norm_double_backward", s, ddy.ptr<T>(), dx.ptr<T>(), dweight.ptr<T>(),
                               ddx.ptr<T>(), or_null<T>(ddweight), or_null<T>(ddbias), dy.ptr<T>(),
                               workspace.raw_ptr(), stream);
  });
}

void channel_window_sum_cuda(const Tensor& y, const Tensor& x, const raw::ChannelWindow& window) {
  const cudaStream_t stream = stream_for({&y, &x});
  dispatch_floating(x.dtype(), "channel_window_sum", [&]<class T>() {
    channel_window_sum("channel_window_sum", y.ptr<T>(), x.ptr<T>(), x.numel() / x.size(1), x.size(1),
                       window.before, window.after, stream);
  });
}

[[maybe_unused]] const bool is_set =
    (raw::group_norm_kernel.cuda = &group_norm_cuda,
     raw::group_norm_backward_kernel.cuda = &group_norm_backward_cuda,
     raw::group_norm_double_backward_kernel.cuda = &group_norm_double_backward_cuda,
     raw::channel_window_sum_kernel.cuda = &channel_window_sum_cuda, true);

}  // namespace
}  // namespace gradus::cuda
