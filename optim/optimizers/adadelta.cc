#include "gradus/optim/optimizers/adadelta.h"

#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::optim {

template class OptimizerWith<AdadeltaOptions>;

void AdadeltaOptions::check() const {
  check_option(lr >= 0, "Adadelta", "lr", ">= 0", lr);
  check_option(rho >= 0 && rho <= 1, "Adadelta", "rho", "in [0, 1]", rho);
  check_option(eps >= 0, "Adadelta", "eps", ">= 0", eps);
  check_option(weight_decay >= 0, "Adadelta", "weight_decay", ">= 0", weight_decay);
}

namespace {

template <class T> struct AdadeltaRule {
  static constexpr raw::Uses kUses = {true, true};
  T lr, rho, fresh, eps;
  void operator()(T& p, T d, T& v, T& u, T&) const {
    v = rho * v + fresh * d * d;
    const T delta = std::sqrt((u + eps) / (v + eps)) * d;
    u = rho * u + fresh * delta * delta;
    p -= lr * delta;
  }
};

void adadelta_step_cpu(const Tensor&, const std::vector<raw::StepItem>& items, const AdadeltaOptions& o) {
  raw::apply_rule("adadelta_step", items, o.weight_decay, o.maximize, [&]<class T>(const raw::StepItem&) {
    return AdadeltaRule<T>{T(o.lr), T(o.rho), T(1 - o.rho), T(o.eps)};
  });
}

}  // namespace

constinit raw::StepSlot<AdadeltaOptions> adadelta_step_kernel{"adadelta_step", &adadelta_step_cpu};

void Adadelta::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(adadelta_step_kernel, items, options(group));
}

}  // namespace gradus::optim
