#include "gradus/optim/optimizers/asgd.h"

#include <algorithm>
#include <cmath>

#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::optim {

template class OptimizerWith<ASGDOptions>;

void ASGDOptions::check() const {
  check_option(lr >= 0, "ASGD", "lr", ">= 0", lr);
  check_option(weight_decay >= 0, "ASGD", "weight_decay", ">= 0", weight_decay);
  // A negative lambd would make the rate grow without bound, or change its sign.
  check_option(lambd >= 0, "ASGD", "lambd", ">= 0", lambd);
}

void ASGD::advance_numbers(size_t group, const raw::StepItem& item, std::array<double, 2>& numbers) const {
  const ASGDOptions& o = options(group);
  const double t = double(item.step);
  numbers = {o.lr / std::pow(1 + o.lambd * o.lr * t, o.alpha), 1 / std::max(1.0, t - o.t0)};
}

namespace {

template <class T> struct ASGDRule {
  static constexpr raw::Uses kUses = {true};
  T eta, shrink, mu;
  void operator()(T& p, T d, T& average, T&, T&) const {
    p = shrink * p - eta * d;
    average = mu == T(1) ? p : average + mu * (p - average);
  }
};

void asgd_step_cpu(const Tensor&, const std::vector<raw::StepItem>& items, const ASGDOptions& o) {
  raw::apply_rule("asgd_step", items, o.weight_decay, o.maximize, [&]<class T>(const raw::StepItem& item) {
    const auto [eta, mu] = item.numbers;
    return ASGDRule<T>{T(eta), T(1 - o.lambd * eta), T(mu)};
  });
}

}  // namespace

constinit raw::StepSlot<ASGDOptions> asgd_step_kernel{"asgd_step", &asgd_step_cpu};

void ASGD::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(asgd_step_kernel, items, options(group));
}

}  // namespace gradus::optim
