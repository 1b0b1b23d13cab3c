// The element-wise update of Lion, shared by CPU and CUDA kernels. Formula: optim/optimizers/lion.h.
#pragma once

#include <vector>

#include "gradus/tensor/ops/formulas/optim_rule.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::optim {

// Updates one element: parameter p, gradient d (negated to maximize), state m (exp_avg).
template <class T> struct LionRule {
  static constexpr raw::UsedStates kUses = {true};
  T lr, shrink, b1, c1, b2, c2;
  GRADUS_HD void operator()(T& p, T d, T& m, T&, T&) const {
    p = shrink * p - lr * raw::sign_of(b1 * m + c1 * d);
    m = b2 * m + c2 * d;
  }
};

// Makes the rule of a parameter from the options and the step number.
struct MakeLion {
  double lr, beta1, beta2, decay;
  template <class T> GRADUS_HD LionRule<T> rule(const raw::StepNumbers&) const {
    return {T(lr), T(1 - lr * decay), T(beta1), T(1 - beta1), T(beta2), T(1 - beta2)};
  }
};

// The kernel for a device. Apply is the device's loop over elements (raw::ApplyOnCPU, cuda::ApplyOnCuda).
template <class Apply, class Options>
void lion_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("lion_step", items, 0, o.maximize, MakeLion{o.lr, o.betas[0], o.betas[1], o.weight_decay});
}

}  // namespace gradus::optim
