// Point-wise losses on the CPU.
#include "gradus/tensor/ops/losses/pointwise_losses.h"
#include "gradus/tensor/kernel.h"

#include "gradus/tensor/cpu/elementwise/kernels.h"
#include "gradus/tensor/ops/losses/loss_functors.h"

namespace gradus::raw {
namespace {

void point_loss_cpu(const Tensor& y, const Tensor& x, const Tensor& target, const PointLossSpec& s) {
  with_loss(s, [&](auto loss, auto) { cpu::binary(y, x, target, loss); });
}
void point_loss_backward_cpu(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& target,
                             const PointLossSpec& s) {
  with_loss(s, [&](auto, auto gradient) { cpu::ternary(dx, dy, x, target, gradient); });
}

}  // namespace

constinit decltype(point_loss_kernel) point_loss_kernel{"point_loss", &point_loss_cpu};
constinit decltype(point_loss_backward_kernel) point_loss_backward_kernel{"point_loss_backward",
                                                                          &point_loss_backward_cpu};

}  // namespace gradus::raw
