// The element-wise update of SGD, shared by CPU and CUDA kernels. Formula: optim/optimizers/sgd.h.
#pragma once

#include <vector>

#include "gradus/tensor/ops/formulas/optim_rule.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::optim {

// Without momentum. Updates one element: parameter p, gradient d (negated to maximize, plus weight decay).
template <class T> struct SGDRule {
  static constexpr raw::UsedStates kUses = {};
  T lr;
  GRADUS_HD void operator()(T& p, T d, T&, T&, T&) const { p -= lr * d; }
};
// Makes the rule of a parameter from the options and the step number.
struct MakeSGD {
  double lr;
  template <class T> GRADUS_HD SGDRule<T> rule(const raw::StepNumbers&) const { return {T(lr)}; }
};

// With momentum; b is the state momentum_buffer:
// b = momentum b + grad_weight d;  p -= lr (direct_weight d + buffer_weight b).
template <class T> struct MomentumRule {
  static constexpr raw::UsedStates kUses = {true};
  T lr, momentum, grad_weight, direct_weight, buffer_weight;
  GRADUS_HD void operator()(T& p, T d, T& b, T&, T&) const {
    b = momentum * b + grad_weight * d;
    p -= lr * (direct_weight * d + buffer_weight * b);
  }
};
// Makes the rule of a parameter from the options and the step number.
struct MakeMomentum {
  double lr, momentum, dampening, direct_weight, buffer_weight;
  template <class T> GRADUS_HD MomentumRule<T> rule(const raw::StepNumbers& n) const {
    // In the first step b = d, without dampening.
    const bool is_first = n.step == 1;
    return {.lr = T(lr),
            .momentum = is_first ? T(0) : T(momentum),
            .grad_weight = is_first ? T(1) : T(1 - dampening),
            .direct_weight = T(direct_weight),
            .buffer_weight = T(buffer_weight)};
  }
};

// The kernel for a device. Apply is the device's loop over elements (raw::ApplyOnCPU, cuda::ApplyOnCuda).
template <class Apply, class Options>
void sgd_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  if (o.momentum == 0) return Apply::rule("sgd_step", items, o.weight_decay, o.maximize, MakeSGD{o.lr});
  Apply::rule("sgd_step", items, o.weight_decay, o.maximize,
              MakeMomentum{.lr = o.lr,
                           .momentum = o.momentum,
                           .dampening = o.dampening,
                           .direct_weight = o.nesterov ? 1.0 : 0.0,
                           .buffer_weight = o.nesterov ? o.momentum : 1});
}

}  // namespace gradus::optim
