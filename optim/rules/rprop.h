// The element-wise update of Rprop, shared by CPU and CUDA kernels. Algorithm: optim/optimizers/rprop.h.
#pragma once

#include <algorithm>
#include <vector>

#include "gradus/tensor/ops/formulas/optim_rule.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::optim {

// Updates one element: parameter p, gradient d (negated to maximize), states previous (prev: the gradient of the
// previous step, 0 after a change of sign), size (step_size).
template <class T> struct RpropRule {
  static constexpr raw::UsedStates kUses = {true, true};
  T eta_minus, eta_plus, min_step, max_step;
  GRADUS_HD void operator()(T& p, T d, T& previous, T& size, T&) const {
    const T turn = d * previous;
    const T unless_turned = turn > T(0) ? eta_plus : T(1);
    size *= turn < T(0) ? eta_minus : unless_turned;
    size = std::min(std::max(size, min_step), max_step);
    const T used = turn < T(0) ? T(0) : d;
    p -= raw::sign_of(used) * size;
    previous = used;
  }
};

// Makes the rule of a parameter from the options and the step number.
struct MakeRprop {
  double eta_minus, eta_plus, min_step, max_step;
  template <class T> GRADUS_HD RpropRule<T> rule(const raw::StepNumbers&) const {
    return {T(eta_minus), T(eta_plus), T(min_step), T(max_step)};
  }
};

// The kernel for a device. Apply is the device's loop over elements (raw::ApplyOnCPU, cuda::ApplyOnCuda).
template <class Apply, class Options>
void rprop_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("rprop_step", items, 0, o.maximize,
              MakeRprop{o.etas[0], o.etas[1], o.step_sizes[0], o.step_sizes[1]});
}

}  // namespace gradus::optim
