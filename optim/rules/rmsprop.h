// The element-wise update of RMSprop, shared by CPU and CUDA kernels. Formula: optim/optimizers/rmsprop.h.
#pragma once

#include <vector>

#include "gradus/tensor/ops/formulas/optim_rule.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::optim {

// Updates one element: parameter p, gradient d (negated to maximize, plus weight decay), states v (square_avg),
// b (momentum_buffer), mean (grad_avg).
template <class T, bool momentum, bool centered> struct RMSpropRule {
  static constexpr raw::UsedStates kUses = {true, momentum, centered};
  T lr, alpha, one_minus_alpha, eps, mu;
  // Copies the members that depend on the learning rate, which CUDA kernels read on the device.
  GRADUS_HD void copy_device_scalars(const RMSpropRule& other) { lr = other.lr; }
  GRADUS_HD void operator()(T& p, T d, T& v, T& b, T& mean) const {
    v = alpha * v + one_minus_alpha * d * d;
    T square = v;
    if constexpr (centered) {
      mean = alpha * mean + one_minus_alpha * d;
      // Replaces a variance that is negative by rounding by 0, and keeps NaN.
      square = v - mean * mean;
      square = square > T(0) ? square : square < T(0) ? T(0) : square;
    }
    T change = d / (m::sqrt(square) + eps);
    if constexpr (momentum) change = b = mu * b + change;
    p -= lr * change;
  }
};

// Makes the rule of a parameter from the options and the step number.
template <bool has_momentum, bool centered> struct MakeRMSprop {
  double lr, alpha, eps, momentum;
  template <class T> GRADUS_HD RMSpropRule<T, has_momentum, centered> rule(const raw::StepNumbers&) const {
    return {T(lr), T(alpha), T(1 - alpha), T(eps), T(momentum)};
  }
};

template <class Apply, bool momentum, bool centered, class Options>
void apply_rmsprop(const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("rmsprop_step", items, o.weight_decay, o.maximize,
              MakeRMSprop<momentum, centered>{o.lr, o.alpha, o.eps, o.momentum});
}

// The kernel for a device. Apply is the device's loop over elements (raw::ApplyOnCPU, cuda::ApplyOnCuda).
template <class Apply, class Options>
void rmsprop_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  if (o.momentum == 0)
    return o.centered ? apply_rmsprop<Apply, false, true>(items, o)
                      : apply_rmsprop<Apply, false, false>(items, o);
  return o.centered ? apply_rmsprop<Apply, true, true>(items, o)
                    : apply_rmsprop<Apply, true, false>(items, o);
}

}  // namespace gradus::optim
