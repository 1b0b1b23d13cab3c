// The element-wise update of NAdam, shared by CPU and CUDA kernels. Formula: optim/optimizers/nadam.h.
#pragma once

#include <vector>

#include "gradus/tensor/ops/formulas/optim_rule.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::optim {

// Updates one element: parameter p, gradient d (negated to maximize, plus weight decay), states m (exp_avg), v
// (exp_avg_sq).
// p -= (grad_rate d + momentum_rate m) / (sqrt(v) root + eps)
template <class T> struct NAdamRule {
  static constexpr raw::UsedStates kUses = {true, true};
  raw::Moments<T> moments;
  T grad_rate, momentum_rate, root, eps;
  // Copies the members that depend on the learning rate and on the step number, which CUDA kernels read on the
  // device.
  GRADUS_HD void copy_device_scalars(const NAdamRule& other) {
    grad_rate = other.grad_rate, momentum_rate = other.momentum_rate, root = other.root;
  }
  GRADUS_HD void operator()(T& p, T d, T& m, T& v, T&) const {
    moments.update(d, m, v);
    p -= (grad_rate * d + momentum_rate * m) / (m::sqrt(v) * root + eps);
  }
};

// StepNumbers::more[0] is the product mu_1 ... mu_(t-1).
struct MakeNAdam {
  double lr, beta1, beta2, eps, momentum_decay;
  template <class Options> static MakeNAdam of(const Options& o) {
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
            .root = T(1 / m::sqrt(raw::correction(beta2, n.step))),
            .eps = T(eps)};
  }
};

// The kernel for a device. Apply is the device's loop over elements (raw::ApplyOnCPU, cuda::ApplyOnCuda).
template <class Apply, class Options>
void nadam_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("nadam_step", items, o.weight_decay, o.maximize, MakeNAdam::of(o));
}

}  // namespace gradus::optim
