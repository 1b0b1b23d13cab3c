// Point-wise losses on the CPU.
#include "gradus/tensor/ops/losses/pointwise_losses.h"
#include "gradus/tensor/kernel.h"

#include "gradus/tensor/cpu/elementwise/kernels.h"
#include "gradus/tensor/ops/losses/loss_functors.h"

namespace gradus::cpu {
namespace {

using namespace functors;  // NOLINT
using raw::PointLoss;

void point_loss(const Tensor& y, const Tensor& x, const Tensor& target, const raw::PointLossSpec& s) {
  switch (s.kind) {
    case PointLoss::kSquaredError:
      return binary<SquaredError>(y, x, target);
    case PointLoss::kAbsoluteError:
      return binary<AbsoluteError>(y, x, target);
    case PointLoss::kSmoothL1:
      return binary<SmoothL1>(y, x, target, {{}, s.parameter});
    case PointLoss::kHuber:
      return binary<Huber>(y, x, target, {{}, s.parameter});
    case PointLoss::kBinaryCrossEntropy:
      return binary<BinaryCrossEntropy>(y, x, target);
    case PointLoss::kBinaryCrossEntropyWithLogits:
      return binary<BinaryCrossEntropyWithLogits>(y, x, target);
    case PointLoss::kSoftMargin:
      return binary<SoftMargin>(y, x, target);
    case PointLoss::kKlDiv:
      return binary<KlDiv>(y, x, target);
    case PointLoss::kKlDivOfLogs:
      return binary<KlDivOfLogs>(y, x, target);
    case PointLoss::kPoissonNll:
      return binary<PoissonNll>(y, x, target, {{}, s.parameter});
    case PointLoss::kPoissonNllOfLogs:
      return binary<PoissonNllOfLogs>(y, x, target);
  }
}

void point_loss_backward(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& target,
                         const raw::PointLossSpec& s) {
  switch (s.kind) {
    case PointLoss::kSquaredError:
      return ternary<SquaredErrorBackward>(dx, dy, x, target);
    case PointLoss::kAbsoluteError:
      return ternary<AbsoluteErrorBackward>(dx, dy, x, target);
    case PointLoss::kSmoothL1:
      return ternary<SmoothL1Backward>(dx, dy, x, target, {{}, s.parameter});
    case PointLoss::kHuber:
      return ternary<HuberBackward>(dx, dy, x, target, {{}, s.parameter});
    case PointLoss::kBinaryCrossEntropy:
      return ternary<BinaryCrossEntropyBackward>(dx, dy, x, target);
    case PointLoss::kBinaryCrossEntropyWithLogits:
      return ternary<BinaryCrossEntropyWithLogitsBackward>(dx, dy, x, target);
    case PointLoss::kSoftMargin:
      return ternary<SoftMarginBackward>(dx, dy, x, target);
    case PointLoss::kKlDiv:
      return ternary<KlDivBackward>(dx, dy, x, target);
    case PointLoss::kKlDivOfLogs:
      return ternary<KlDivOfLogsBackward>(dx, dy, x, target);
    case PointLoss::kPoissonNll:
      return ternary<PoissonNllBackward>(dx, dy, x, target, {{}, s.parameter});
    case PointLoss::kPoissonNllOfLogs:
      return ternary<PoissonNllOfLogsBackward>(dx, dy, x, target);
  }
}

}  // namespace
}  // namespace gradus::cpu

namespace gradus::raw {
using namespace cpu;  // NOLINT

constinit decltype(point_loss_kernel) point_loss_kernel{"point_loss", &cpu::point_loss};
constinit decltype(point_loss_backward_kernel) point_loss_backward_kernel{"point_loss_backward",
                                                                          &cpu::point_loss_backward};

}  // namespace gradus::raw
