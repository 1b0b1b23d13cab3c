#include "gradus/tensor/ops/losses/pointwise_losses.h"

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/elementwise.h"
#include "gradus/tensor/tensor_checks.h"

namespace gradus::raw {

Tensor point_loss(const char* op, const Tensor& x, const Tensor& target, const PointLossSpec& spec) {
  if (x.shape() != target.shape())
    throw ShapeError(op, "expected x and target of one shape, given x ", describe(x), " and target ",
                     describe(target));
  check_floating(op, "x", x);
  check_floating(op, "target", target);
  Tensor y = empty_result(op, promote(x.dtype(), target.dtype()), {&x, &target});
  point_loss_kernel(y, x, target, spec);
  return y;
}

Tensor point_loss_backward(const Tensor& dy, const Tensor& x, const Tensor& target,
                           const PointLossSpec& spec) {
  Tensor dx = empty_result("point_loss_backward", dy.dtype(), {&dy, &x, &target});
  point_loss_backward_kernel(dx, dy, x, target, spec);
  return dx;
}

}  // namespace gradus::raw
