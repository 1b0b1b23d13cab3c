// The element-wise update of RAdam, shared by CPU and CUDA kernels. Formula: optim/optimizers/radam.h.
#pragma once

#include <vector>

#include "gradus/tensor/ops/formulas/optim_rule.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::optim {

// Updates one element: parameter p, gradient d (negated to maximize, plus weight decay), states m (exp_avg), v
// (exp_avg_sq).
// p -= rate m / (root sqrt(v) + offset), with root = 1 and offset = eps, or root = 0 and offset = 1 while
// rho_t <= 5.
template <class T> struct RAdamRule {
  static constexpr raw::UsedStates kUses = {true, true};
  raw::Moments<T> moments;
  T rate, root, offset;
  // Copies the members that depend on the learning rate and on the step number, which CUDA kernels read on the
  // device.
  GRADUS_HD void copy_device_scalars(const RAdamRule& other) {
    rate = other.rate, root = other.root, offset = other.offset;
  }
  GRADUS_HD void operator()(T& p, T d, T& m, T& v, T&) const {
    moments.update(d, m, v);
    p -= rate * m / (root * m::sqrt(v) + offset);
  }
};

// Makes the rule of a parameter from the options and the step number.
struct MakeRAdam {
  double lr, beta1, beta2, eps;
  template <class T> GRADUS_HD RAdamRule<T> rule(const raw::StepNumbers& n) const {
    const double c2 = raw::correction(beta2, n.step), r = 2 / (1 - beta2) - 1,
                 rho = r - 2 * n.step * m::pow(beta2, n.step) / c2;
    double rate = lr / raw::correction(beta1, n.step);
    const bool adapts = rho > 5;
    if (adapts) rate *= m::sqrt((rho - 4) * (rho - 2) * r / ((r - 4) * (r - 2) * rho)) * m::sqrt(c2);
    return {.moments = raw::Moments<T>::of(beta1, beta2),
            .rate = T(rate),
            .root = adapts ? T(1) : T(0),
            .offset = adapts ? T(eps) : T(1)};
  }
};

// The kernel for a device. Apply is the device's loop over elements (raw::ApplyOnCPU, cuda::ApplyOnCuda).
template <class Apply, class Options>
void radam_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("radam_step", items, o.weight_decay, o.maximize,
              MakeRAdam{o.lr, o.betas[0], o.betas[1], o.eps});
}

}  // namespace gradus::optim
