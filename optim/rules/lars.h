// The updates of LARS and LAMB, shared by CPU and CUDA kernels. Formulas: optim/optimizers/lars.h. A rule
// makes two passes over a parameter, each called per element p with gradient g and three states, of which it
// uses those in kUses: measure() returns the elements of two vectors, and step() applies the update with the
// factor that rate() computes from the 2-norms of these vectors. kMeasurePass and kStepPass state what each
// pass reads and writes. An XRuleFactory creates the rule of a step, on the host or on a GPU.
// copy_device_scalars() copies the members that depend on the learning rate and the step number, which CUDA
// kernels may read on the device.
#pragma once

#include <algorithm>

#include "gradus/tensor/ops/formulas/optim_rule.h"

namespace gradus::optim {

// State b (momentum_buffer). sign is -1 to maximize, else 1; decay is weight_decay.
template <class T> struct LARSRule {
  static constexpr raw::UsedStates kUses = {true};
  static constexpr raw::Pass kMeasurePass = {
      .reads_grad = true, .reads_states = false, .writes_states = false, .writes_param = false};
  static constexpr raw::Pass kStepPass = {
      .reads_grad = true, .reads_states = true, .writes_states = true, .writes_param = true};
  T momentum, sign;
  double lr, trust_coefficient, decay, eps;

  GRADUS_HD void copy_device_scalars(const LARSRule& other) { lr = other.lr; }
  // The norms of parameter and gradient.
  GRADUS_HD raw::Pair<T> measure(T p, T g, T&, T&, T&) const { return {p, g}; }
  // Returns lr times the trust ratio, from the norms of parameter and gradient.
  GRADUS_HD T rate(double param, double grad) const {
    const double ratio =
        param > 0 && grad > 0 ? trust_coefficient * param / (grad + decay * param + eps) : 1.0;
    return T(lr * ratio);
  }
  GRADUS_HD void step(T rate, T& p, T g, T& b, T&, T&) const {
    b = momentum * b + rate * (sign * g + T(decay) * p);
    p -= b;
  }
};
struct LARSRuleFactory {
  double momentum, sign, lr, trust_coefficient, decay, eps;
  template <class Options> static LARSRuleFactory of(const Options& o) {
    return {.momentum = o.momentum,
            .sign = o.maximize ? -1.0 : 1.0,
            .lr = o.lr,
            .trust_coefficient = o.trust_coefficient,
            .decay = o.weight_decay,
            .eps = o.eps};
  }
  template <class T> GRADUS_HD LARSRule<T> rule(const raw::StepNumbers&) const {
    return {T(momentum), T(sign), lr, trust_coefficient, decay, eps};
  }
};

// States m (exp_avg), v (exp_avg_sq), which measure() updates. Both passes compute the direction, which is
// not stored. inv_correction1 = 1 / (1 - beta1^step), inv_sqrt_correction2 = 1 / sqrt(1 - beta2^step).
template <class T> struct LAMBRule {
  static constexpr raw::UsedStates kUses = {true, true};
  static constexpr raw::Pass kMeasurePass = {
      .reads_grad = true, .reads_states = true, .writes_states = true, .writes_param = false};
  static constexpr raw::Pass kStepPass = {
      .reads_grad = false, .reads_states = true, .writes_states = false, .writes_param = true};
  raw::Moments<T> moments;
  T sign, inv_correction1, inv_sqrt_correction2, eps;
  double decay, lr, max_norm;

  GRADUS_HD void update(T g, T& m, T& v) const { moments.update(sign * g, m, v); }
  GRADUS_HD T direction(T p, T m, T v) const {
    return inv_correction1 * m / (m::sqrt(v) * inv_sqrt_correction2 + eps) + T(decay) * p;
  }

  GRADUS_HD void copy_device_scalars(const LAMBRule& other) {
    inv_correction1 = other.inv_correction1, inv_sqrt_correction2 = other.inv_sqrt_correction2, lr = other.lr;
  }
  // The norms of parameter and direction.
  GRADUS_HD raw::Pair<T> measure(T p, T g, T& m, T& v, T&) const {
    update(g, m, v);
    return {p, direction(p, m, v)};
  }
  // Returns lr times the trust ratio, from the norms of parameter and direction.
  GRADUS_HD T rate(double param, double direction) const {
    if (max_norm > 0) param = std::min(param, max_norm);
    return T(lr * (param > 0 && direction > 0 ? param / direction : 1.0));
  }
  GRADUS_HD void step(T rate, T& p, T, T& m, T& v, T&) const { p -= rate * direction(p, m, v); }
};
struct LAMBRuleFactory {
  double lr, beta1, beta2, eps, decay, max_norm, sign;
  double correction_beta1, correction_beta2;  // betas of the bias correction; 0 without bias correction
  template <class Options> static LAMBRuleFactory of(const Options& o) {
    return {.lr = o.lr,
            .beta1 = o.betas[0],
            .beta2 = o.betas[1],
            .eps = o.eps,
            .decay = o.weight_decay,
            .max_norm = o.max_norm,
            .sign = o.maximize ? -1.0 : 1.0,
            .correction_beta1 = o.bias_correction ? o.betas[0] : 0.0,
            .correction_beta2 = o.bias_correction ? o.betas[1] : 0.0};
  }
  template <class T> GRADUS_HD LAMBRule<T> rule(const raw::StepNumbers& n) const {
    return {.moments = raw::Moments<T>::of(beta1, beta2),
            .sign = T(sign),
            .inv_correction1 = T(1 / raw::correction(correction_beta1, n.step)),
            .inv_sqrt_correction2 = T(1 / m::sqrt(raw::correction(correction_beta2, n.step))),
            .eps = T(eps),
            .decay = decay,
            .lr = lr,
            .max_norm = max_norm};
  }
};

}  // namespace gradus::optim
