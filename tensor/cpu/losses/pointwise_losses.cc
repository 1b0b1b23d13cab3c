// Point-wise losses on the CPU.
#include "gradus/tensor/ops/losses/pointwise_losses.h"
#include "gradus/tensor/kernel.h"

#include "gradus/tensor/cpu/elementwise/kernels.h"
#include "gradus/tensor/ops/losses/loss_functors.h"
#include "gradus/tensor/ops/reduce.h"

namespace gradus::raw {
namespace {

using functors::AgainstNumber, functors::TimesFactor, functors::TimesFactorAgainstNumber;

void point_loss_cpu(const Tensor& y, const Tensor& x, const Tensor& target, const PointLossSpec& s) {
  with_loss(s, [&]<class F, class G>(F loss, G) {
    target.defined() ? cpu::binary(y, x, target, loss) : cpu::unary(y, x, AgainstNumber<F>{loss, s.target});
  });
}
void point_loss_sum_cpu(const Tensor& y, const Tensor&, const Tensor& x, const Tensor& target,
                        const PointLossSpec& s, double factor) {
  const Tensor losses =
      target.defined() ? empty_result("point_loss", y.dtype(), {&x, &target}) : empty_like(x, y.dtype());
  point_loss_cpu(losses, x, target, s);
  sum_kernel.cpu(y, losses, factor);
}
void point_loss_backward_cpu(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& target,
                             const PointLossSpec& s, double factor) {
  with_loss(s, [&]<class F, class G>(F, G slope) {
    const TimesFactor<G> scaled{slope, factor};
    target.defined() ? cpu::ternary(dx, dy, x, target, scaled)
                     : cpu::binary(dx, dy, x, TimesFactorAgainstNumber<G>{scaled, s.target});
  });
}

}  // namespace

constinit decltype(point_loss_kernel) point_loss_kernel{"point_loss", &point_loss_cpu};
constinit decltype(point_loss_sum_kernel) point_loss_sum_kernel{"point_loss_sum", &point_loss_sum_cpu};
constinit decltype(point_loss_backward_kernel) point_loss_backward_kernel{"point_loss_backward",
                                                                          &point_loss_backward_cpu};

}  // namespace gradus::raw
