// The element-wise update of Adamax, shared by CPU and CUDA kernels. Formula: optim/optimizers/adamax.h.
#pragma once

#include <vector>

#include "gradus/tensor/ops/formulas/optim_rule.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::optim {

// Updates one element: parameter p, gradient d (negated to maximize, plus weight decay), states m (exp_avg), u
// (exp_inf).
template <class T> struct AdamaxRule {
  static constexpr raw::UsedStates kUses = {true, true};
  T b1, c1, b2, rate, eps;
  GRADUS_HD void operator()(T& p, T d, T& m, T& u, T&) const {
    m = b1 * m + c1 * d;
    const T decayed = b2 * u, current = m::abs(d) + eps;
    u = decayed > current ? decayed : current;
    p -= rate * m / u;
  }
};

// Makes the rule of a parameter from the options and the step number.
struct MakeAdamax {
  double lr, beta1, beta2, eps;
  template <class T> GRADUS_HD AdamaxRule<T> rule(const raw::StepNumbers& n) const {
    return {.b1 = T(beta1),
            .c1 = T(1 - beta1),
            .b2 = T(beta2),
            .rate = T(lr / raw::correction(beta1, n.step)),
            .eps = T(eps)};
  }
};

// The kernel for a device. Apply is the device's loop over elements (raw::ApplyOnCPU, cuda::ApplyOnCuda).
template <class Apply, class Options>
void adamax_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("adamax_step", items, o.weight_decay, o.maximize,
              MakeAdamax{o.lr, o.betas[0], o.betas[1], o.eps});
}

}  // namespace gradus::optim
