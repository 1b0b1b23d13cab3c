// The step of stochastic gradient descent with momentum.
#pragma once

#include <vector>

#include "gradus/tensor/ops/formulas/optim_rule.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::optim {

template <class T> struct SGDRule {
  static constexpr raw::Uses kUses = {};
  T lr;
  GRADUS_HD void operator()(T& p, T d, T&, T&, T&) const { p -= lr * d; }
};

// b = keep b + take d;  p -= lr (direct d + ahead b)
template <class T> struct MomentumRule {
  static constexpr raw::Uses kUses = {true};
  T lr, keep, take, direct, ahead;
  GRADUS_HD void operator()(T& p, T d, T& b, T&, T&) const {
    b = keep * b + take * d;
    p -= lr * (direct * d + ahead * b);
  }
};

// The kernel. Apply is a device's loop over elements.
template <class Apply, class Options>
void sgd_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  if (o.momentum == 0)
    return Apply::rule("sgd_step", items, o.weight_decay, o.maximize,
                       [&]<class T>(const raw::StepItem&) { return SGDRule<T>{T(o.lr)}; });
  Apply::rule("sgd_step", items, o.weight_decay, o.maximize, [&]<class T>(const raw::StepItem& item) {
    // A new buffer is zero. The first gradient enters it undamped.
    const bool fresh = item.step == 1;
    return MomentumRule<T>{.lr = T(o.lr),
                           .keep = fresh ? T(0) : T(o.momentum),
                           .take = fresh ? T(1) : T(1 - o.dampening),
                           .direct = o.nesterov ? T(1) : T(0),
                           .ahead = o.nesterov ? T(o.momentum) : T(1)};
  });
}

}  // namespace gradus::optim
