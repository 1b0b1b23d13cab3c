// The CUDA kernel of the gradient of element-wise losses: dx = factor * dy * d loss(x, target) / dx, by the
// functors of loss_functors.h. dy, x and target broadcast to dx. An undefined target: the number s.target.
#include "gradus/tensor/cuda/ops/elementwise.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/losses/loss_functors.h"
#include "gradus/tensor/ops/losses/pointwise_losses.h"

namespace gradus::cuda {
namespace {

using functors::ScaledGradient, functors::ScaledWithScalarTarget;

// The functor F with the op's name for errors.
template <class F> struct LossBackward : F {
  static constexpr const char* name = "point_loss_backward";
};

void point_loss_backward_cuda(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& target,
                              const raw::PointLossSpec& s, double factor) {
  raw::with_loss(s, [&]<class F, class G>(F, G gradient) {
    const ScaledGradient<G> scaled{gradient, factor};
    if (target.defined())
      launch_elementwise(LossBackward<ScaledGradient<G>>{scaled}, dx, dy, x, target);
    else
      launch_elementwise(LossBackward<ScaledWithScalarTarget<G>>{{scaled, s.target}}, dx, dy, x);
  });
}

[[maybe_unused]] const bool is_set = (raw::point_loss_backward_kernel.cuda = &point_loss_backward_cuda, true);

}  // namespace
}  // namespace gradus::cuda
