// The step of LAMB.
#pragma once

#include <algorithm>
#include <cmath>

#include "gradus/tensor/ops/formulas/optim_rule.h"

namespace gradus::optim {

// The directions are not stored but computed twice: for their norm, and for the step.
template <class T> struct LAMBRule {
  static constexpr raw::Uses kUses = {true, true};
  static constexpr raw::Pass kMeasured = {
      .reads_grad = true, .reads_states = true, .writes_states = true, .writes_param = false};
  static constexpr raw::Pass kStepped = {
      .reads_grad = false, .reads_states = true, .writes_states = false, .writes_param = true};
  raw::Moments<T> moments;
  T sign, first, root, eps;
  double decay, lr, max_norm;

  template <class Options> static LAMBRule of(const Options& o, int64_t step) {
    const auto correction = [&](double beta) {
      return o.bias_correction ? raw::correction(beta, step) : 1.0;
    };
    return {.moments = raw::Moments<T>::of(o.betas),
            .sign = o.maximize ? T(-1) : T(1),
            .first = T(1 / correction(o.betas[0])),
            .root = T(1 / std::sqrt(correction(o.betas[1]))),
            .eps = T(o.eps),
            .decay = o.weight_decay,
            .lr = o.lr,
            .max_norm = o.max_norm};
  }

  GRADUS_HD void update(T g, T& m, T& v) const { moments.update(sign * g, m, v); }
  GRADUS_HD T direction(T p, T m, T v) const { return first * m / (m::sqrt(v) * root + eps) + T(decay) * p; }

  // Of these the norms over a parameter are taken.
  GRADUS_HD raw::Two<T> measure(T p, T g, T& m, T& v, T&) const {
    update(g, m, v);
    return {p, direction(p, m, v)};
  }
  // Given the norms.
  GRADUS_HD T rate(double param, double direction) const {
    if (max_norm > 0) param = std::min(param, max_norm);
    return T(lr * (param > 0 && direction > 0 ? param / direction : 1.0));
  }
  GRADUS_HD void step(T rate, T& p, T, T& m, T& v, T&) const { p -= rate * direction(p, m, v); }
};

}  // namespace gradus::optim
