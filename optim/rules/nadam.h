// The step of NAdam.
#pragma once

#include <cmath>
#include <vector>

#include "gradus/tensor/ops/formulas/optim_rule.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::optim {

// The weight of the momentum in step `step`.
template <class Options> double mu_of(const Options& o, int64_t step) {
  return o.betas[0] * (1 - 0.5 * std::pow(0.96, double(step) * o.momentum_decay));
}

// p -= (now d + ahead m) / (sqrt(v) root + eps)
template <class T> struct NAdamRule {
  static constexpr raw::Uses kUses = {true, true};
  raw::Moments<T> moments;
  T now, ahead, root, eps;
  GRADUS_HD void operator()(T& p, T d, T& m, T& v, T&) const {
    moments.update(d, m, v);
    p -= (now * d + ahead * m) / (m::sqrt(v) * root + eps);
  }
};

// The kernel. Apply is a device's loop over elements.
template <class Apply, class Options>
void nadam_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("nadam_step", items, o.weight_decay, o.maximize, [&]<class T>(const raw::StepItem& item) {
    const double mu = mu_of(o, item.step), next = mu_of(o, item.step + 1), product = item.numbers[0] * mu;
    return NAdamRule<T>{.moments = raw::Moments<T>::of(o.betas),
                        .now = T(o.lr * (1 - mu) / (1 - product)),
                        .ahead = T(o.lr * next / (1 - product * next)),
                        .root = T(1 / std::sqrt(raw::correction(o.betas[1], item.step))),
                        .eps = T(o.eps)};
  });
}

}  // namespace gradus::optim
