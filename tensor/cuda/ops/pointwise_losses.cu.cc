#include "gradus/tensor/ops/losses/pointwise_losses.h"

#include "gradus/tensor/cuda/kernels/loss_sum.h"
#include "gradus/tensor/cuda/ops/elementwise.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/losses/loss_functors.h"
#include "gradus/tensor/ops/reduce.h"

namespace gradus::cuda {
namespace {

using functors::AgainstNumber, functors::TimesFactor;

template <class F> struct Loss : F {
  static constexpr const char* name = "point_loss";
};

void point_loss_cuda(const Tensor& y, const Tensor& x, const Tensor& target, const raw::PointLossSpec& s) {
  raw::with_loss(s, [&]<class F, class G>(F loss, G) {
    if (target.defined())
      compute(Loss<F>{loss}, y, x, target);
    else
      compute(Loss<AgainstNumber<F>>{{loss, s.target}}, y, x);
  });
}

void point_loss_sum_cuda(const Tensor& y, const Tensor& slope, const Tensor& x, const Tensor& target,
                         const raw::PointLossSpec& s, double factor) {
  const bool is_dense =
      x.numel() > 0 && x.is_dense() && y.dtype() == x.dtype() &&
      (!target.defined() || (target.dtype() == x.dtype() && target.strides() == x.strides()));
  if (!is_dense) {
    const Tensor losses = empty_like(x, y.dtype());
    point_loss_cuda(losses, x, target, s);
    return raw::sum_kernel.cuda(y, losses, factor);
  }
  const cudaStream_t stream = stream_for({&y, &slope, &x, &target});
  const Tensor workspace = empty({loss_sum_workspace(x.numel())}, {DType::kU8, x.device()});
  raw::with_loss(s, [&]<class F, class G>(F loss, G gradient) {
    dispatch_all(x.dtype(), [&]<class T>() {
      if constexpr (is_floating(dtype_v<T>))
        sum_losses("point_loss_sum", loss, TimesFactor<G>{gradient, factor}, y.ptr<T>(),
                   slope.defined() ? slope.ptr<T>() : nullptr, static_cast<const T*>(x.ptr<T>()),
                   target.defined() ? static_cast<const T*>(target.ptr<T>()) : nullptr, s.target, x.numel(),
                   workspace.raw_ptr(), stream);
    });
  });
}

[[maybe_unused]] const bool is_set = (raw::point_loss_kernel.cuda = &point_loss_cuda,
                                      raw::point_loss_sum_kernel.cuda = &point_loss_sum_cuda, true);

}  // namespace
}  // namespace gradus::cuda
