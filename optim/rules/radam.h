// The step of RAdam.
#pragma once

#include <cmath>
#include <vector>

#include "gradus/tensor/ops/formulas/optim_rule.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::optim {

// p -= rate m / (root sqrt(v) + rest)
template <class T> struct RAdamRule {
  static constexpr raw::Uses kUses = {true, true};
  raw::Moments<T> moments;
  T rate, root, rest;
  GRADUS_HD void operator()(T& p, T d, T& m, T& v, T&) const {
    moments.update(d, m, v);
    p -= rate * m / (root * m::sqrt(v) + rest);
  }
};

// The kernel. Apply is a device's loop over elements.
template <class Apply, class Options>
void radam_step(const Tensor&, const std::vector<raw::StepItem>& items, const Options& o) {
  Apply::rule("radam_step", items, o.weight_decay, o.maximize, [&]<class T>(const raw::StepItem& item) {
    const double c2 = raw::correction(o.betas[1], item.step), r = 2 / (1 - o.betas[1]) - 1,
                 rho = r - 2 * double(item.step) * std::pow(o.betas[1], double(item.step)) / c2;
    double rate = o.lr / raw::correction(o.betas[0], item.step);
    const bool adapts = rho > 5;
    if (adapts) rate *= std::sqrt((rho - 4) * (rho - 2) * r / ((r - 4) * (r - 2) * rho)) * std::sqrt(c2);
    return RAdamRule<T>{.moments = raw::Moments<T>::of(o.betas),
                        .rate = T(rate),
                        .root = adapts ? T(1) : T(0),
                        .rest = adapts ? T(o.eps) : T(1)};
  });
}

}  // namespace gradus::optim
