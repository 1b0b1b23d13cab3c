// The element-wise updates of Adagrad, RMSprop and Adadelta, shared by CPU and CUDA kernels. Formulas:
// optim/optimizers/rmsprop.h. A rule (tensor/ops/formulas/optim_rule.h) updates one element in place:
// parameter p, then up to three states, of which it uses those in kUses. d is the gradient, negated to
// maximize, plus weight decay. T is the type to compute in: f32 for 16-bit floats, else the parameter's. An
// XRuleFactory creates the rule of a step from the options and the step number. x_step is the kernel of a
// device, whose loop over `items`, one per parameter, is Apply (raw::ApplyOnCPU, cuda::ApplyOnCuda).
// copy_device_scalars() copies the members that CUDA kernels may read on the device; without it, all members.
#pragma once

#include <vector>

#include "gradus/tensor/ops/formulas/optim_rule.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::optim {

// State sum.
template <class T> struct AdagradRule {
  static constexpr raw::UsedStates kUses = {true};
  T rate, eps;
  GRADUS_HD void operator()(T& p, T d, T& sum, T&, T&) const {
    sum += d * d;
    p -= rate * d / (m::sqrt(sum) + eps);
  }
};

struct AdagradRuleFactory {
  double lr, lr_decay, eps;
  template <class T> GRADUS_HD AdagradRule<T> rule(const raw::StepNumbers& n) const {
    return {T(lr / (1 + (n.step - 1) * lr_decay)), T(eps)};
  }
};

template <class Apply, class Options>
void adagrad_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("adagrad_step", items, o.weight_decay, o.maximize, AdagradRuleFactory{o.lr, o.lr_decay, o.eps});
}

// States v (square_avg), b (momentum_buffer), mean (grad_avg). alpha: decay of the averages; mu: momentum.
template <class T, bool momentum, bool centered> struct RMSpropRule {
  static constexpr raw::UsedStates kUses = {true, momentum, centered};
  T lr, alpha, one_minus_alpha, eps, mu;
  GRADUS_HD void copy_device_scalars(const RMSpropRule& other) { lr = other.lr; }
  GRADUS_HD void operator()(T& p, T d, T& v, T& b, T& mean) const {
    v = alpha * v + one_minus_alpha * d * d;
    T square = v;
    if constexpr (centered) {
      mean = alpha * mean + one_minus_alpha * d;
      // 0 in place of a variance that is negative by rounding; NaN stays.
      square = v - mean * mean;
      square = square > T(0) ? square : square < T(0) ? T(0) : square;
    }
    T change = d / (m::sqrt(square) + eps);
    if constexpr (momentum) change = b = mu * b + change;
    p -= lr * change;
  }
};

template <bool has_momentum, bool centered> struct RMSpropRuleFactory {
  double lr, alpha, eps, momentum;
  template <class T> GRADUS_HD RMSpropRule<T, has_momentum, centered> rule(const raw::StepNumbers&) const {
    return {T(lr), T(alpha), T(1 - alpha), T(eps), T(momentum)};
  }
};

template <class Apply, bool momentum, bool centered, class Options>
void apply_rmsprop(const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("rmsprop_step", items, o.weight_decay, o.maximize,
              RMSpropRuleFactory<momentum, centered>{o.lr, o.alpha, o.eps, o.momentum});
}

template <class Apply, class Options>
void rmsprop_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  if (o.momentum == 0)
    return o.centered ? apply_rmsprop<Apply, false, true>(items, o)
                      : apply_rmsprop<Apply, false, false>(items, o);
  return o.centered ? apply_rmsprop<Apply, true, true>(items, o)
                    : apply_rmsprop<Apply, true, false>(items, o);
}

// States v (square_avg), u (acc_delta).
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

struct AdadeltaRuleFactory {
  double lr, rho, eps;
  template <class T> GRADUS_HD AdadeltaRule<T> rule(const raw::StepNumbers&) const {
    return {T(lr), T(rho), T(1 - rho), T(eps)};
  }
};

template <class Apply, class Options>
void adadelta_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("adadelta_step", items, o.weight_decay, o.maximize, AdadeltaRuleFactory{o.lr, o.rho, o.eps});
}

}  // namespace gradus::optim
