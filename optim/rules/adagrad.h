// The element-wise update of Adagrad, shared by CPU and CUDA kernels. Formula: optim/optimizers/adagrad.h.
#pragma once

#include <vector>

#include "gradus/tensor/ops/formulas/optim_rule.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::optim {

// Updates one element: parameter p, gradient d (negated to maximize, plus weight decay), state sum.
template <class T> struct AdagradRule {
  static constexpr raw::UsedStates kUses = {true};
  T rate, eps;
  GRADUS_HD void operator()(T& p, T d, T& sum, T&, T&) const {
    sum += d * d;
    p -= rate * d / (m::sqrt(sum) + eps);
  }
};

// Makes the rule of a parameter from the options and the step number.
struct MakeAdagrad {
  double lr, lr_decay, eps;
  template <class T> GRADUS_HD AdagradRule<T> rule(const raw::StepNumbers& n) const {
    return {T(lr / (1 + (n.step - 1) * lr_decay)), T(eps)};
  }
};

// The kernel for a device. Apply is the device's loop over elements (raw::ApplyOnCPU, cuda::ApplyOnCuda).
template <class Apply, class Options>
void adagrad_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("adagrad_step", items, o.weight_decay, o.maximize, MakeAdagrad{o.lr, o.lr_decay, o.eps});
}

}  // namespace gradus::optim
