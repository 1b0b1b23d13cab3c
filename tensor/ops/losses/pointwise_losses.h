// Raw element-wise losses (mse, l1, huber, binary cross-entropy, ...), their sum, and their gradient. The
// differentiable forms are in gradus/autograd/ops/losses/pointwise_losses.h.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// The losses, with the name of PointLossSpec::parameter if they have one. Formulas:
// gradus/tensor/ops/losses/loss_functors.h.
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
  double target = 0;  // the target of all elements if the target tensor is undefined
};

// Returns the loss of each element. x and target have the same shape.
// Errors, naming `op`: ShapeError for other shapes; DTypeError unless both are floating; DeviceError.
Tensor point_loss(const char* op, const Tensor& x, const Tensor& target, const PointLossSpec& spec);
// Returns loss [] = factor * sum of the losses, and gradient = d loss / dx. gradient is undefined unless
// compute_gradient is true and the device can compute both in one launch. Errors: as point_loss.
struct PointLossSum {
  Tensor loss, gradient;
};
PointLossSum point_loss_sum(const char* op, const Tensor& x, const Tensor& target, const PointLossSpec& spec,
                            double factor, bool compute_gradient);
// Returns the gradient of x in dy's dtype: factor * dy * d loss / dx. dy broadcasts to x; x and target are
// those of point_loss.
Tensor point_loss_backward(const Tensor& dy, const Tensor& x, const Tensor& target, const PointLossSpec& spec,
                           double factor);

// Checks that the elements of binary_cross_entropy's x or target are in [0, 1]. On a CUDA device the error is
// thrown when the host next synchronizes.
// Errors: ValueError with the first element outside.
void check_probabilities(const Tensor& x, bool is_target);

// x is row-major.
extern KernelSlot<void(const Tensor& x, bool is_target)> check_probabilities_kernel;
// Kernels: any strides, any floating dtype.
extern KernelSlot<void(const Tensor& y, const Tensor& x, const Tensor& target, const PointLossSpec&)>
    point_loss_kernel;
// y has as many dims as x, each of size 1. gradient is undefined on CPUs and may be defined on GPUs; then x,
// gradient and target are dense with one layout and one dtype, and x has 1 to 4096 elements.
extern KernelSlot<void(const Tensor& y, const Tensor& gradient, const Tensor& x, const Tensor& target,
                       const PointLossSpec&, double factor)>
    point_loss_sum_kernel;
extern KernelSlot<void(const Tensor& dx, const Tensor& dy, const Tensor& x, const Tensor& target,
                       const PointLossSpec&, double factor)>
    point_loss_backward_kernel;

}  // namespace gradus::raw
