#include "gradus/tensor/ops/losses/pointwise_losses.h"

#include "gradus/tensor/cuda/ops/elementwise.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/losses/loss_functors.h"

namespace gradus::cuda {
namespace {

template <class F> struct Loss : F {
  static constexpr const char* name = "point_loss";
};
template <class F> struct LossBackward : F {
  static constexpr const char* name = "point_loss_backward";
};

void point_loss_cuda(const Tensor& y, const Tensor& x, const Tensor& target, const raw::PointLossSpec& s) {
  raw::with_loss(s, [&]<class F, class G>(F loss, G) { compute(Loss<F>{loss}, y, x, target); });
}
void point_loss_backward_cuda(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& target,
                              const raw::PointLossSpec& s) {
  raw::with_loss(s,
                 [&]<class F, class G>(F, G slope) { compute(LossBackward<G>{slope}, dx, dy, x, target); });
}

[[maybe_unused]] const bool is_set = (raw::point_loss_kernel.cuda = &point_loss_cuda,
                                      raw::point_loss_backward_kernel.cuda = &point_loss_backward_cuda, true);

}  // namespace
}  // namespace gradus::cuda
