// The step of Adagrad.
#pragma once

#include <vector>

#include "gradus/tensor/ops/formulas/optim_rule.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::optim {

template <class T> struct AdagradRule {
  static constexpr raw::Uses kUses = {true};
  T rate, eps;
  GRADUS_HD void operator()(T& p, T d, T& sum, T&, T&) const {
    sum += d * d;
    p -= rate * d / (m::sqrt(sum) + eps);
  }
};

// The kernel. Apply is a device's loop over elements.
template <class Apply, class Options>
void adagrad_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("adagrad_step", items, o.weight_decay, o.maximize, [&]<class T>(const raw::StepItem& item) {
    return AdagradRule<T>{T(o.lr / (1 + double(item.step - 1) * o.lr_decay)), T(o.eps)};
  });
}

}  // namespace gradus::optim
