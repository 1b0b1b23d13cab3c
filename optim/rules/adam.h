// The element-wise updates of Adam, AdamW, SparseAdam, Adamax, NAdam and RAdam, shared by CPU and CUDA kernels. Formulas:
// optim/optimizers/adam.h. A rule (tensor/ops/formulas/optim_rule.h) updates one element in place: parameter
// p, then up to three states, of which it uses those in kUses. d is the gradient, negated to maximize, plus
// weight decay unless that is decoupled. T is the type to compute in: f32 for 16-bit floats, else the
// parameter's. An XRuleFactory creates the rule of a step from the options and the step number. x_step is the
// kernel of a device, whose loop over the elements of `items`, one per parameter, is Apply (raw::ApplyOnCPU,
// cuda::ApplyOnCuda). copy_device_scalars() copies the members that depend on the learning rate and on the
// step number, which CUDA kernels may read on the device; without it, all members.
#pragma once

#include <vector>

#include "gradus/tensor/ops/formulas/optim_rule.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::optim {

// States m (exp_avg), v (exp_avg_sq), max_v (max_exp_avg_sq, for amsgrad, where max_v replaces v below).
// p = decay_factor p - step_size m / (sqrt(v) inv_sqrt_correction2 + eps), with decay_factor = 1 - lr decay,
// step_size = lr / (1 - beta1^step) and inv_sqrt_correction2 = 1 / sqrt(1 - beta2^step)
template <class T, bool amsgrad> struct AdamRule {
  static constexpr raw::UsedStates kUses = {true, true, amsgrad};
  raw::Moments<T> moments;
  T decay_factor, step_size, inv_sqrt_correction2, eps;
  GRADUS_HD void copy_device_scalars(const AdamRule& other) {
    decay_factor = other.decay_factor, step_size = other.step_size,
    inv_sqrt_correction2 = other.inv_sqrt_correction2;
  }
  GRADUS_HD void operator()(T& p, T d, T& m, T& v, T& max_v) const {
    moments.update(d, m, v);
    T second = v;
    if constexpr (amsgrad) second = max_v = max_v < v ? v : max_v;
    p = decay_factor * p - step_size * m / (m::sqrt(second) * inv_sqrt_correction2 + eps);
  }
};

template <bool amsgrad> struct AdamRuleFactory {
  double lr, beta1, beta2, eps, decay;  // decay: decoupled weight decay
  template <class T> GRADUS_HD AdamRule<T, amsgrad> rule(const raw::StepNumbers& n) const {
    return {.moments = raw::Moments<T>::of(beta1, beta2),
            .decay_factor = T(1 - lr * decay),
            .step_size = T(lr / raw::correction(beta1, n.step)),
            .inv_sqrt_correction2 = T(1 / m::sqrt(raw::correction(beta2, n.step))),
            .eps = T(eps)};
  }
};

template <class Apply, bool amsgrad, class Options>
void apply_adam(const char* op, const std::vector<raw::StepItem>& items, const Options& o,
                double decay_of_grad, double decay) {
  Apply::rule(op, items, decay_of_grad, o.maximize,
              AdamRuleFactory<amsgrad>{o.lr, o.betas[0], o.betas[1], o.eps, decay});
}

template <class Apply, class Options>
void adam_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  const auto apply = o.amsgrad ? &apply_adam<Apply, true, Options> : &apply_adam<Apply, false, Options>;
  apply("adam_step", items, o, o.weight_decay, 0);
}
template <class Apply, class Options>
void adamw_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  const auto apply = o.amsgrad ? &apply_adam<Apply, true, Options> : &apply_adam<Apply, false, Options>;
  apply("adamw_step", items, o, 0, o.weight_decay);
}

// States m (exp_avg), u (exp_inf): the exponentially decayed maximum of |d|.
template <class T> struct AdamaxRule {
  static constexpr raw::UsedStates kUses = {true, true};
  T beta1, one_minus_beta1, beta2, step_size, eps;
  GRADUS_HD void operator()(T& p, T d, T& m, T& u, T&) const {
    m = beta1 * m + one_minus_beta1 * d;
    const T decayed = beta2 * u, current = m::abs(d) + eps;
    u = decayed > current ? decayed : current;
    p -= step_size * m / u;
  }
};

struct AdamaxRuleFactory {
  double lr, beta1, beta2, eps;
  template <class T> GRADUS_HD AdamaxRule<T> rule(const raw::StepNumbers& n) const {
    return {.beta1 = T(beta1),
            .one_minus_beta1 = T(1 - beta1),
            .beta2 = T(beta2),
            .step_size = T(lr / raw::correction(beta1, n.step)),
            .eps = T(eps)};
  }
};

template <class Apply, class Options>
void adamax_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("adamax_step", items, o.weight_decay, o.maximize,
              AdamaxRuleFactory{o.lr, o.betas[0], o.betas[1], o.eps});
}

// States m (exp_avg), v (exp_avg_sq).
// p -= (grad_rate d + momentum_rate m) / (sqrt(v) inv_sqrt_correction2 + eps)
template <class T> struct NAdamRule {
  static constexpr raw::UsedStates kUses = {true, true};
  raw::Moments<T> moments;
  T grad_rate, momentum_rate, inv_sqrt_correction2, eps;
  GRADUS_HD void copy_device_scalars(const NAdamRule& other) {
    grad_rate = other.grad_rate, momentum_rate = other.momentum_rate,
    inv_sqrt_correction2 = other.inv_sqrt_correction2;
  }
  GRADUS_HD void operator()(T& p, T d, T& m, T& v, T&) const {
    moments.update(d, m, v);
    p -= (grad_rate * d + momentum_rate * m) / (m::sqrt(v) * inv_sqrt_correction2 + eps);
  }
};

// StepNumbers::more[0] is the product mu_1 ... mu_(t-1), 1 before the first step; advance() multiplies it by
// mu_t.
struct NAdamRuleFactory {
  double lr, beta1, beta2, eps, momentum_decay;
  template <class Options> static NAdamRuleFactory of(const Options& o) {
    return {o.lr, o.betas[0], o.betas[1], o.eps, o.momentum_decay};
  }
  // Returns mu_t for t = step.
  GRADUS_HD double mu(double step) const { return beta1 * (1 - 0.5 * m::pow(0.96, step * momentum_decay)); }
  GRADUS_HD void advance(raw::StepNumbers& n) const { n.more[0] *= mu(n.step); }
  template <class T> GRADUS_HD NAdamRule<T> rule(const raw::StepNumbers& n) const {
    const double mu_t = mu(n.step), mu_next = mu(n.step + 1), product = n.more[0] * mu_t;
    return {.moments = raw::Moments<T>::of(beta1, beta2),
            .grad_rate = T(lr * (1 - mu_t) / (1 - product)),
            .momentum_rate = T(lr * mu_next / (1 - product * mu_next)),
            .inv_sqrt_correction2 = T(1 / m::sqrt(raw::correction(beta2, n.step))),
            .eps = T(eps)};
  }
};

template <class Apply, class Options>
void nadam_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("nadam_step", items, o.weight_decay, o.maximize, NAdamRuleFactory::of(o));
}

// States m (exp_avg), v (exp_avg_sq).
// p -= step_size m / (sqrt_factor sqrt(v) + offset), with sqrt_factor = 1 and offset = eps for rho_t > 5.
// Else sqrt_factor = 0 and offset = 1: no division by sqrt(v).
template <class T> struct RAdamRule {
  static constexpr raw::UsedStates kUses = {true, true};
  raw::Moments<T> moments;
  T step_size, sqrt_factor, offset;
  GRADUS_HD void copy_device_scalars(const RAdamRule& other) {
    step_size = other.step_size, sqrt_factor = other.sqrt_factor, offset = other.offset;
  }
  GRADUS_HD void operator()(T& p, T d, T& m, T& v, T&) const {
    moments.update(d, m, v);
    p -= step_size * m / (sqrt_factor * m::sqrt(v) + offset);
  }
};

struct RAdamRuleFactory {
  double lr, beta1, beta2, eps;
  template <class T> GRADUS_HD RAdamRule<T> rule(const raw::StepNumbers& n) const {
    const double c2 = raw::correction(beta2, n.step), r = 2 / (1 - beta2) - 1,
                 rho = r - 2 * n.step * m::pow(beta2, n.step) / c2;
    double step_size = lr / raw::correction(beta1, n.step);
    const bool is_adaptive = rho > 5;
    if (is_adaptive)
      step_size *= m::sqrt((rho - 4) * (rho - 2) * r / ((r - 4) * (r - 2) * rho)) * m::sqrt(c2);
    return {.moments = raw::Moments<T>::of(beta1, beta2),
            .step_size = T(step_size),
            .sqrt_factor = is_adaptive ? T(1) : T(0),
            .offset = is_adaptive ? T(eps) : T(1)};
  }
};

// SparseAdam: RAdam's update with the division, and with eps added to sqrt(v) before the bias correction.
struct SparseAdamRuleFactory {
  double lr, beta1, beta2, eps;
  template <class T> GRADUS_HD RAdamRule<T> rule(const raw::StepNumbers& n) const {
    return {.moments = raw::Moments<T>::of(beta1, beta2),
            .step_size = T(lr * m::sqrt(raw::correction(beta2, n.step)) / raw::correction(beta1, n.step)),
            .sqrt_factor = T(1),
            .offset = T(eps)};
  }
};

template <class Apply, class Options>
void sparse_adam_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("sparse_adam_step", items, 0, o.maximize,
              SparseAdamRuleFactory{o.lr, o.betas[0], o.betas[1], o.eps});
}

template <class Apply, class Options>
void radam_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("radam_step", items, o.weight_decay, o.maximize,
              RAdamRuleFactory{o.lr, o.betas[0], o.betas[1], o.eps});
}

}  // namespace gradus::optim
