// The update of LARS, shared by CPU and CUDA kernels. Formula: optim/optimizers/lars.h.
#pragma once

#include "gradus/tensor/ops/formulas/optim_rule.h"

namespace gradus::optim {

// Two passes: measure() returns the values whose norms are computed, step() applies the update with the factor
// that rate() computes from the norms. b is the state momentum_buffer.
template <class T> struct LARSRule {
  static constexpr raw::UsedStates kUses = {true};
  static constexpr raw::Pass kMeasurePass = {
      .reads_grad = true, .reads_states = false, .writes_states = false, .writes_param = false};
  static constexpr raw::Pass kStepPass = {
      .reads_grad = true, .reads_states = true, .writes_states = true, .writes_param = true};
  T momentum, sign;
  double lr, trust, decay, eps;

  // Copies the members that depend on the learning rate, which CUDA kernels read on the device.
  GRADUS_HD void copy_device_scalars(const LARSRule& other) { lr = other.lr; }
  // Returns the elements of the two vectors whose norms over the parameter are passed to rate(): parameter,
  // gradient.
  GRADUS_HD raw::Pair<T> measure(T p, T g, T&, T&, T&) const { return {p, g}; }
  // Returns lr times the trust ratio, from the norms of parameter and gradient.
  GRADUS_HD T rate(double param, double grad) const {
    const double ratio = param > 0 && grad > 0 ? trust * param / (grad + decay * param + eps) : 1.0;
    return T(lr * ratio);
  }
  GRADUS_HD void step(T rate, T& p, T g, T& b, T&, T&) const {
    b = momentum * b + rate * (sign * g + T(decay) * p);
    p -= b;
  }
};
// Makes the rule of a parameter from the options and the step number.
struct MakeLARS {
  double momentum, sign, lr, trust, decay, eps;
  template <class Options> static MakeLARS of(const Options& o) {
    return {.momentum = o.momentum,
            .sign = o.maximize ? -1.0 : 1.0,
            .lr = o.lr,
            .trust = o.trust_coefficient,
            .decay = o.weight_decay,
            .eps = o.eps};
  }
  template <class T> GRADUS_HD LARSRule<T> rule(const raw::StepNumbers&) const {
    return {T(momentum), T(sign), lr, trust, decay, eps};
  }
};

}  // namespace gradus::optim
