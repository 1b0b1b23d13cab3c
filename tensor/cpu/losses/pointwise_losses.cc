// Point-wise losses on the CPU.
#include "gradus/tensor/ops/losses/pointwise_losses.h"
#include "gradus/tensor/kernel.h"

#include "gradus/tensor/cpu/elementwise/kernels.h"
#include "gradus/tensor/ops/losses/loss_functors.h"

namespace gradus::raw {
namespace {

using namespace functors;  // NOLINT

// Calls f(functor of the loss, functor of its gradient).
template <class F> void with_functors(const PointLossSpec& s, F f) {
  switch (s.kind) {
    case PointLoss::kSquaredError:
      return f(SquaredError{}, SquaredErrorBackward{});
    case PointLoss::kAbsoluteError:
      return f(AbsoluteError{}, AbsoluteErrorBackward{});
    case PointLoss::kSmoothL1:
      return f(SmoothL1{{}, s.parameter}, SmoothL1Backward{{}, s.parameter});
    case PointLoss::kHuber:
      return f(Huber{{}, s.parameter}, HuberBackward{{}, s.parameter});
    case PointLoss::kBinaryCrossEntropy:
      return f(BinaryCrossEntropy{}, BinaryCrossEntropyBackward{});
    case PointLoss::kBinaryCrossEntropyWithLogits:
      return f(BinaryCrossEntropyWithLogits{}, BinaryCrossEntropyWithLogitsBackward{});
    case PointLoss::kSoftMargin:
      return f(SoftMargin{}, SoftMarginBackward{});
    case PointLoss::kKlDiv:
      return f(KlDiv{}, KlDivBackward{});
    case PointLoss::kKlDivOfLogs:
      return f(KlDivOfLogs{}, KlDivOfLogsBackward{});
    case PointLoss::kPoissonNll:
      return f(PoissonNll{{}, s.parameter}, PoissonNllBackward{{}, s.parameter});
    case PointLoss::kPoissonNllOfLogs:
      return f(PoissonNllOfLogs{}, PoissonNllOfLogsBackward{});
  }
}

void point_loss_cpu(const Tensor& y, const Tensor& x, const Tensor& target, const PointLossSpec& s) {
  with_functors(s, [&](auto loss, auto) { cpu::binary(y, x, target, loss); });
}
void point_loss_backward_cpu(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& target,
                             const PointLossSpec& s) {
  with_functors(s, [&](auto, auto gradient) { cpu::ternary(dx, dy, x, target, gradient); });
}

}  // namespace

constinit decltype(point_loss_kernel) point_loss_kernel{"point_loss", &point_loss_cpu};
constinit decltype(point_loss_backward_kernel) point_loss_backward_kernel{"point_loss_backward",
                                                                          &point_loss_backward_cpu};

}  // namespace gradus::raw
