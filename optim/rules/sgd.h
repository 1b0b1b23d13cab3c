// The element-wise updates of SGD, ASGD, Lion and Rprop, shared by CPU and CUDA kernels. Formulas:
// optim/optimizers/sgd.h. A rule (tensor/ops/formulas/optim_rule.h) updates one element in place: parameter
// p, then up to three states, of which it uses those in kUses. d is the gradient, negated to maximize, plus
// weight decay unless that is decoupled. T is the type to compute in: f32 for 16-bit floats, else the
// parameter's. An XRuleFactory creates the rule of a step from the options and the step number. x_step is the
// kernel of a device, whose loop over `items`, one per parameter, is Apply (raw::ApplyOnCPU, ApplyOnCuda).
#pragma once

#include <algorithm>
#include <vector>

#include "gradus/tensor/ops/formulas/optim_rule.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::optim {

// Without momentum.
template <class T> struct SGDRule {
  static constexpr raw::UsedStates kUses = {};
  T lr;
  GRADUS_HD void operator()(T& p, T d, T&, T&, T&) const { p -= lr * d; }
};
struct SGDRuleFactory {
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
struct MomentumRuleFactory {
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

template <class Apply, class Options>
void sgd_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  if (o.momentum == 0)
    return Apply::rule("sgd_step", items, o.weight_decay, o.maximize, SGDRuleFactory{o.lr});
  Apply::rule("sgd_step", items, o.weight_decay, o.maximize,
              MomentumRuleFactory{.lr = o.lr,
                                  .momentum = o.momentum,
                                  .dampening = o.dampening,
                                  .direct_weight = o.nesterov ? 1.0 : 0.0,
                                  .buffer_weight = o.nesterov ? o.momentum : 1});
}

// Averaged SGD. State average (ax): p = (1 - lambd eta) p - eta d;  average += mu (p - average).
template <class T> struct ASGDRule {
  static constexpr raw::UsedStates kUses = {true};
  T eta, decay_factor, mu;
  GRADUS_HD void operator()(T& p, T d, T& average, T&, T&) const {
    p = decay_factor * p - eta * d;
    average = mu == T(1) ? p : average + mu * (p - average);
  }
};

// StepNumbers::more is {eta, mu} for this step: the step size, and the weight of the parameter in its
// average. advance() computes those of the next step, after the update.
struct ASGDRuleFactory {
  double lr, lambd, alpha, t0;
  template <class Options> static ASGDRuleFactory of(const Options& o) {
    return {o.lr, o.lambd, o.alpha, o.t0};
  }
  GRADUS_HD void advance(raw::StepNumbers& n) const {
    const double averaged = n.step - t0;
    n.more[0] = lr / m::pow(1 + lambd * lr * n.step, alpha);
    n.more[1] = 1 / (averaged > 1 ? averaged : 1.0);
  }
  template <class T> GRADUS_HD ASGDRule<T> rule(const raw::StepNumbers& n) const {
    const double eta = n.step == 1 ? lr : n.more[0];  // lr may have changed before the first step
    return {T(eta), T(1 - lambd * eta), T(n.more[1])};
  }
};

template <class Apply, class Options>
void asgd_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("asgd_step", items, o.weight_decay, o.maximize, ASGDRuleFactory::of(o));
}

// Lion. State m (exp_avg).
// p = (1 - lr decay) p - lr sign(beta1 m + (1 - beta1) d);  m = beta2 m + (1 - beta2) d
template <class T> struct LionRule {
  static constexpr raw::UsedStates kUses = {true};
  T lr, decay_factor, beta1, one_minus_beta1, beta2, one_minus_beta2;
  GRADUS_HD void operator()(T& p, T d, T& m, T&, T&) const {
    p = decay_factor * p - lr * raw::sign_of(beta1 * m + one_minus_beta1 * d);
    m = beta2 * m + one_minus_beta2 * d;
  }
};

struct LionRuleFactory {
  double lr, beta1, beta2, decay;
  template <class T> GRADUS_HD LionRule<T> rule(const raw::StepNumbers&) const {
    return {T(lr), T(1 - lr * decay), T(beta1), T(1 - beta1), T(beta2), T(1 - beta2)};
  }
};

template <class Apply, class Options>
void lion_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("lion_step", items, 0, o.maximize,
              LionRuleFactory{o.lr, o.betas[0], o.betas[1], o.weight_decay});
}

// Rprop: p -= sign(d) size, where size grows by eta_plus while the gradient keeps its sign, and shrinks by
// eta_minus after a change of sign, which also skips the update. States previous (prev: the gradient of the
// previous step, 0 after a change of sign), size (step_size).
template <class T> struct RpropRule {
  static constexpr raw::UsedStates kUses = {true, true};
  T eta_minus, eta_plus, min_step, max_step;
  GRADUS_HD void operator()(T& p, T d, T& previous, T& size, T&) const {
    const T sign_product = d * previous;
    const T unless_reversed = sign_product > T(0) ? eta_plus : T(1);
    size *= sign_product < T(0) ? eta_minus : unless_reversed;
    size = std::min(std::max(size, min_step), max_step);
    const T effective_grad = sign_product < T(0) ? T(0) : d;
    p -= raw::sign_of(effective_grad) * size;
    previous = effective_grad;
  }
};

struct RpropRuleFactory {
  double eta_minus, eta_plus, min_step, max_step;
  template <class T> GRADUS_HD RpropRule<T> rule(const raw::StepNumbers&) const {
    return {T(eta_minus), T(eta_plus), T(min_step), T(max_step)};
  }
};

template <class Apply, class Options>
void rprop_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("rprop_step", items, 0, o.maximize,
              RpropRuleFactory{o.etas[0], o.etas[1], o.step_sizes[0], o.step_sizes[1]});
}

}  // namespace gradus::optim
