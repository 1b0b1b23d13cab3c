#include "gradus/optim/optimizers/lion.h"

#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::optim {

template class OptimizerWith<LionOptions>;

void LionOptions::check() const {
  check_option(lr >= 0, "Lion", "lr", ">= 0", lr);
  check_betas("Lion", betas);
  check_option(weight_decay >= 0, "Lion", "weight_decay", ">= 0", weight_decay);
}

namespace {

template <class T> struct LionRule {
  static constexpr raw::Uses kUses = {true};
  T lr, shrink, b1, c1, b2, c2;
  void operator()(T& p, T d, T& m, T&, T&) const {
    p = shrink * p - lr * raw::sign_of(b1 * m + c1 * d);
    m = b2 * m + c2 * d;
  }
};

void lion_step_cpu(const Tensor&, const std::vector<raw::StepItem>& items, const LionOptions& o) {
  raw::apply_rule("lion_step", items, 0, o.maximize, [&]<class T>(const raw::StepItem&) {
    return LionRule<T>{T(o.lr),       T(1 - o.lr * o.weight_decay),
                       T(o.betas[0]), T(1 - o.betas[0]),
                       T(o.betas[1]), T(1 - o.betas[1])};
  });
}

}  // namespace

constinit raw::StepSlot<LionOptions> lion_step_kernel{"lion_step", &lion_step_cpu};

void Lion::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(lion_step_kernel, items, options(group));
}

}  // namespace gradus::optim
