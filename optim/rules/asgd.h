// The element-wise update of ASGD, shared by CPU and CUDA kernels. Formula: optim/optimizers/asgd.h.
#pragma once

#include <vector>

#include "gradus/tensor/ops/formulas/optim_rule.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::optim {

// Updates one element: parameter p, gradient d (negated to maximize, plus weight decay), state average (ax).
template <class T> struct ASGDRule {
  static constexpr raw::UsedStates kUses = {true};
  T eta, shrink, mu;
  GRADUS_HD void operator()(T& p, T d, T& average, T&, T&) const {
    p = shrink * p - eta * d;
    average = mu == T(1) ? p : average + mu * (p - average);
  }
};

// StepNumbers::more is {eta, mu}, where mu is the weight of the parameter in its average.
struct MakeASGD {
  double lr, lambd, alpha, t0;
  template <class Options> static MakeASGD of(const Options& o) { return {o.lr, o.lambd, o.alpha, o.t0}; }
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

// The kernel for a device. Apply is the device's loop over elements (raw::ApplyOnCPU, cuda::ApplyOnCuda).
template <class Apply, class Options>
void asgd_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("asgd_step", items, o.weight_decay, o.maximize, MakeASGD::of(o));
}

}  // namespace gradus::optim
