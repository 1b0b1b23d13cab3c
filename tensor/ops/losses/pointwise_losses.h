// Raw point-wise losses: of every element and its target. The differentiable forms
// are in gradus/autograd/ops/losses/pointwise_losses.h.
#pragma once

#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// Which one; `parameter` belongs to those that name it. Formulas: gradus/tensor/ops/losses/loss_functors.h.
enum class PointLoss {
  kSquaredError,
  kAbsoluteError,
  kSmoothL1,  // beta
  kHuber,     // delta
  kBinaryCrossEntropy,
  kBinaryCrossEntropyWithLogits,
  kSoftMargin,
  kKlDiv,
  kKlDivOfLogs,
  kPoissonNll,  // eps
  kPoissonNllOfLogs,
};
struct PointLossSpec {
  PointLoss kind;
  double parameter = 0;
};

// x and target of one shape -> the loss of every element.
// Errors, named `op`: ShapeError unless the shapes are equal; DTypeError unless both
// are floating; DeviceError.
Tensor point_loss(const char* op, const Tensor& x, const Tensor& target, const PointLossSpec& spec);
// dy, which broadcasts to x, times the slope in x.
Tensor point_loss_backward(const Tensor& dy, const Tensor& x, const Tensor& target,
                           const PointLossSpec& spec);

// Kernels: any strides and floating dtypes.
extern KernelSlot<void(const Tensor& y, const Tensor& x, const Tensor& target, const PointLossSpec&)>
    point_loss_kernel;
extern KernelSlot<void(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& target,
                       const PointLossSpec&)>
    point_loss_backward_kernel;

}  // namespace gradus::raw
