// Raw point-wise losses, which compare every element with its target. The differentiable forms
// are in gradus/autograd/ops/losses/pointwise_losses.h.
#pragma once

#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// The losses. A comment names the meaning of `parameter`, where a loss has one. Their formulas
// are in gradus/tensor/ops/losses/loss_functors.h.
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
  double target = 0;  // of every element, where the tensor of targets is undefined
};

// Returns the loss of every element. x and target have one shape.
// Errors, naming `op`: ShapeError unless the shapes are equal; DTypeError unless both
// are floating; DeviceError.
Tensor point_loss(const char* op, const Tensor& x, const Tensor& target, const PointLossSpec& spec);
// Returns factor times the sum of these losses, [], and `slope`: the gradient of x where the sum's is 1. It
// is undefined unless it is wanted and the device computes it in the same launch.
struct PointLossSum {
  Tensor loss, slope;
};
PointLossSum point_loss_sum(const char* op, const Tensor& x, const Tensor& target, const PointLossSpec& spec,
                            double factor, bool wants_slope);
// Returns factor dy times the slope in x. dy broadcasts to x.
Tensor point_loss_backward(const Tensor& dy, const Tensor& x, const Tensor& target, const PointLossSpec& spec,
                           double factor);

// Checks that the elements of binary_cross_entropy's x or target are from 0 to 1. The error of an element on a
// CUDA device is thrown where the host next waits.
// Errors: ValueError with the first element that is not.
void check_probabilities(const Tensor& x, bool is_target);

// Row-major x.
extern KernelSlot<void(const Tensor& x, bool is_target)> check_probabilities_kernel;
// Kernels: any strides, any floating dtype.
extern KernelSlot<void(const Tensor& y, const Tensor& x, const Tensor& target, const PointLossSpec&)>
    point_loss_kernel;
// y has as many dims as x, each of size 1. On CPUs slope is undefined. Elsewhere it may be defined. Then x,
// slope and target are dense and lie alike, all have one dtype, and x has 1 to 4096 elements.
extern KernelSlot<void(const Tensor& y, const Tensor& slope, const Tensor& x, const Tensor& target,
                       const PointLossSpec&, double factor)>
    point_loss_sum_kernel;
extern KernelSlot<void(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& target,
                       const PointLossSpec&, double factor)>
    point_loss_backward_kernel;

}  // namespace gradus::raw
