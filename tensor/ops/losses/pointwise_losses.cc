// Element-wise losses on any device: checks the arguments, allocates results, and calls the kernels of the
// device (KernelSlots in pointwise_losses.h). Not differentiable; autograd/ops/losses/pointwise_losses.h
// records these calls. An undefined target means the number PointLossSpec::target for all elements.
#include "gradus/tensor/ops/losses/pointwise_losses.h"

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/elementwise.h"
#include "gradus/tensor/ops/reduce.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::raw {
namespace {

// Returns the losses' dtype: x's, promoted with the target's. Errors: as point_loss.
DType checked_dtype(const char* op, const Tensor& x, const Tensor& target) {
  check_floating(op, "x", x);
  if (!target.defined()) return x.dtype();
  if (x.shape() != target.shape())
    throw ShapeError(op, "expected x and target of one shape, got x ", describe(x), " and target ",
                     describe(target));
  check_floating(op, "target", target);
  if (!are_compatible_devices(x.device(), target.device()))
    throw DeviceError(op, "x and target are on different devices: x ", describe(x), ", target ",
                      describe(target));
  return promote(x.dtype(), target.dtype());
}

Tensor empty_losses(const char* op, DType dtype, const Tensor& x, const Tensor& target) {
  return target.defined() ? empty_result(op, dtype, {&x, &target}) : empty_like(x, dtype);
}

// Maximum number of elements for which point_loss_sum computes the gradient as well. For more elements,
// writing the gradient in the forward costs more than the saved launch of the backward.
constexpr int64_t kMaxGradients = 4096;

// Returns whether the GPU's sum kernel can compute the gradient in the same launch. The CPU's never does.
bool computes_gradient_with_sum(const Tensor& x, const Tensor& target, DType dtype) {
  return x.device().type != DeviceType::kCPU && x.numel() > 0 && x.numel() <= kMaxGradients && x.is_dense() &&
         x.dtype() == dtype &&
         (!target.defined() || (target.dtype() == dtype && target.strides() == x.strides()));
}

}  // namespace

Tensor point_loss(const char* op, const Tensor& x, const Tensor& target, const PointLossSpec& spec) {
  Tensor y = empty_losses(op, checked_dtype(op, x, target), x, target);
  point_loss_kernel(y, x, target, spec);
  return y;
}

PointLossSum point_loss_sum(const char* op, const Tensor& x, const Tensor& target, const PointLossSpec& spec,
                            double factor, bool compute_gradient) {
  const DType dtype = checked_dtype(op, x, target);
  const ReductionResult r = make_reduction(x, {}, false, dtype, op);
  const Tensor gradient =
      compute_gradient && computes_gradient_with_sum(x, target, dtype) ? empty_like(x) : Tensor();
  point_loss_sum_kernel(r.with_keepdim, gradient, x, target, spec, factor);
  return {r.result, gradient};
}

Tensor point_loss_backward(const Tensor& dy, const Tensor& x, const Tensor& target, const PointLossSpec& spec,
                           double factor) {
  const char* const op = "point_loss_backward";
  Tensor dx = target.defined() ? empty_result(op, dy.dtype(), {&dy, &x, &target})
                               : empty_result(op, dy.dtype(), {&dy, &x});
  point_loss_backward_kernel(dx, dy, x, target, spec, factor);
  return dx;
}

void check_probabilities(const Tensor& x, bool is_target) {
  check_probabilities_kernel(contiguous(x), is_target);
}

}  // namespace gradus::raw
