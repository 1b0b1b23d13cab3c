// The step of averaged stochastic gradient descent.
#pragma once

#include <vector>

#include "gradus/tensor/ops/formulas/optim_rule.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::optim {

template <class T> struct ASGDRule {
  static constexpr raw::Uses kUses = {true};
  T eta, shrink, mu;
  GRADUS_HD void operator()(T& p, T d, T& average, T&, T&) const {
    p = shrink * p - eta * d;
    average = mu == T(1) ? p : average + mu * (p - average);
  }
};

// The kernel. Apply is a device's loop over elements.
template <class Apply, class Options>
void asgd_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("asgd_step", items, o.weight_decay, o.maximize, [&]<class T>(const raw::StepItem& item) {
    const auto [eta, mu] = item.numbers;
    return ASGDRule<T>{T(eta), T(1 - o.lambd * eta), T(mu)};
  });
}

}  // namespace gradus::optim
