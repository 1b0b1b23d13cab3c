// The element-wise update of Adadelta, shared by CPU and CUDA kernels. Formula: optim/optimizers/adadelta.h.
#pragma once

#include <vector>

#include "gradus/tensor/ops/formulas/optim_rule.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::optim {

// Updates one element: parameter p, gradient d (negated to maximize, plus weight decay), states v (square_avg),
// u (acc_delta).
template <class T> struct AdadeltaRule {
  static constexpr raw::UsedStates kUses = {true, true};
  T lr, rho, one_minus_rho, eps;
  GRADUS_HD void operator()(T& p, T d, T& v, T& u, T&) const {
    v = rho * v + one_minus_rho * d * d;
    const T delta = m::sqrt((u + eps) / (v + eps)) * d;
    u = rho * u + one_minus_rho * delta * delta;
    p -= lr * delta;
  }
};

// Makes the rule of a parameter from the options and the step number.
struct MakeAdadelta {
  double lr, rho, eps;
  template <class T> GRADUS_HD AdadeltaRule<T> rule(const raw::StepNumbers&) const {
    return {T(lr), T(rho), T(1 - rho), T(eps)};
  }
};

// The kernel for a device. Apply is the device's loop over elements (raw::ApplyOnCPU, cuda::ApplyOnCuda).
template <class Apply, class Options>
void adadelta_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("adadelta_step", items, o.weight_decay, o.maximize, MakeAdadelta{o.lr, o.rho, o.eps});
}

}  // namespace gradus::optim
