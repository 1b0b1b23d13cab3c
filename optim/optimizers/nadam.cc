#include "gradus/optim/optimizers/nadam.h"

#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::optim {

template class OptimizerWith<NAdamOptions>;

void NAdamOptions::check() const {
  check_option(lr >= 0, "NAdam", "lr", ">= 0", lr);
  check_betas("NAdam", betas);
  check_option(eps >= 0, "NAdam", "eps", ">= 0", eps);
  check_option(weight_decay >= 0, "NAdam", "weight_decay", ">= 0", weight_decay);
  check_option(momentum_decay >= 0, "NAdam", "momentum_decay", ">= 0", momentum_decay);
}

namespace {

double mu_of(const NAdamOptions& o, int64_t step) {
  return o.betas[0] * (1 - 0.5 * std::pow(0.96, double(step) * o.momentum_decay));
}

// p -= (now d + ahead m) / (sqrt(v) root + eps)
template <class T> struct NAdamRule {
  static constexpr raw::Uses kUses = {true, true};
  raw::Moments<T> moments;
  T now, ahead, root, eps;
  void operator()(T& p, T d, T& m, T& v, T&) const {
    moments.update(d, m, v);
    p -= (now * d + ahead * m) / (std::sqrt(v) * root + eps);
  }
};

void nadam_step_cpu(const Tensor&, const std::vector<raw::StepItem>& items, const NAdamOptions& o) {
  raw::apply_rule("nadam_step", items, o.weight_decay, o.maximize, [&]<class T>(const raw::StepItem& item) {
    const double mu = mu_of(o, item.step), next = mu_of(o, item.step + 1), product = item.numbers[0] * mu;
    return NAdamRule<T>{.moments = raw::Moments<T>::of(o.betas),
                        .now = T(o.lr * (1 - mu) / (1 - product)),
                        .ahead = T(o.lr * next / (1 - product * next)),
                        .root = T(1 / std::sqrt(raw::correction(o.betas[1], item.step))),
                        .eps = T(o.eps)};
  });
}

}  // namespace

constinit raw::StepSlot<NAdamOptions> nadam_step_kernel{"nadam_step", &nadam_step_cpu};

void NAdam::advance_numbers(size_t group, const raw::StepItem& item, std::array<double, 2>& numbers) const {
  numbers[0] *= mu_of(options(group), item.step);
}

void NAdam::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(nadam_step_kernel, items, options(group));
}

}  // namespace gradus::optim
