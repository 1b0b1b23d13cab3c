#include "gradus/optim/optimizers/adamax.h"

#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::optim {

template class OptimizerWith<AdamaxOptions>;

void AdamaxOptions::check() const {
  check_option(lr >= 0, "Adamax", "lr", ">= 0", lr);
  check_betas("Adamax", betas);
  check_option(eps >= 0, "Adamax", "eps", ">= 0", eps);
  check_option(weight_decay >= 0, "Adamax", "weight_decay", ">= 0", weight_decay);
}

namespace {

template <class T> struct AdamaxRule {
  static constexpr raw::Uses kUses = {true, true};
  T b1, c1, b2, rate, eps;
  void operator()(T& p, T d, T& m, T& u, T&) const {
    m = b1 * m + c1 * d;
    const T old = b2 * u, now = std::abs(d) + eps;
    u = old > now ? old : now;
    p -= rate * m / u;
  }
};

void adamax_step_cpu(const Tensor&, const std::vector<raw::StepItem>& items, const AdamaxOptions& o) {
  raw::apply_rule("adamax_step", items, o.weight_decay, o.maximize, [&]<class T>(const raw::StepItem& item) {
    return AdamaxRule<T>{.b1 = T(o.betas[0]),
                         .c1 = T(1 - o.betas[0]),
                         .b2 = T(o.betas[1]),
                         .rate = T(o.lr / raw::correction(o.betas[0], item.step)),
                         .eps = T(o.eps)};
  });
}

}  // namespace

constinit raw::StepSlot<AdamaxOptions> adamax_step_kernel{"adamax_step", &adamax_step_cpu};

void Adamax::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(adamax_step_kernel, items, options(group));
}

}  // namespace gradus::optim
