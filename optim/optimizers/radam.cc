#include "gradus/optim/optimizers/radam.h"

#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::optim {

template class OptimizerWith<RAdamOptions>;

void RAdamOptions::check() const {
  check_option(lr >= 0, "RAdam", "lr", ">= 0", lr);
  check_betas("RAdam", betas);
  check_option(eps >= 0, "RAdam", "eps", ">= 0", eps);
  check_option(weight_decay >= 0, "RAdam", "weight_decay", ">= 0", weight_decay);
}

namespace {

// p -= rate m / (root sqrt(v) + rest)
template <class T> struct RAdamRule {
  static constexpr raw::Uses kUses = {true, true};
  raw::Moments<T> moments;
  T rate, root, rest;
  void operator()(T& p, T d, T& m, T& v, T&) const {
    moments.update(d, m, v);
    p -= rate * m / (root * std::sqrt(v) + rest);
  }
};

void radam_step_cpu(const Tensor&, const std::vector<raw::StepItem>& items, const RAdamOptions& o) {
  raw::apply_rule("radam_step", items, o.weight_decay, o.maximize, [&]<class T>(const raw::StepItem& item) {
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

}  // namespace

constinit raw::StepSlot<RAdamOptions> radam_step_kernel{"radam_step", &radam_step_cpu};

void RAdam::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(radam_step_kernel, items, options(group));
}

}  // namespace gradus::optim
