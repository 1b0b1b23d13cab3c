#include "gradus/optim/optimizers/rprop.h"

#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::optim {

template class OptimizerWith<RpropOptions>;

void RpropOptions::check() const {
  check_option(lr >= 0, "Rprop", "lr", ">= 0", lr);
  check_option(etas[0] > 0 && etas[0] < 1, "Rprop", "etas[0]", "in (0, 1)", etas[0]);
  check_option(etas[1] > 1, "Rprop", "etas[1]", "> 1", etas[1]);
  check_option(step_sizes[0] >= 0, "Rprop", "step_sizes[0]", ">= 0", step_sizes[0]);
  check_option(step_sizes[1] >= step_sizes[0], "Rprop", "step_sizes[1]", ">= step_sizes[0]", step_sizes[1]);
}

namespace {

template <class T> struct RpropRule {
  static constexpr raw::Uses kUses = {true, true};
  T eta_minus, eta_plus, min_step, max_step;
  void operator()(T& p, T d, T& previous, T& size, T&) const {
    const T turn = d * previous;
    const T unless_turned = turn > T(0) ? eta_plus : T(1);
    size *= turn < T(0) ? eta_minus : unless_turned;
    size = std::min(std::max(size, min_step), max_step);
    const T used = turn < T(0) ? T(0) : d;
    p -= raw::sign_of(used) * size;
    previous = used;
  }
};

void rprop_step_cpu(const Tensor&, const std::vector<raw::StepItem>& items, const RpropOptions& o) {
  raw::apply_rule("rprop_step", items, 0, o.maximize, [&]<class T>(const raw::StepItem&) {
    return RpropRule<T>{T(o.etas[0]), T(o.etas[1]), T(o.step_sizes[0]), T(o.step_sizes[1])};
  });
}

}  // namespace

constinit raw::StepSlot<RpropOptions> rprop_step_kernel{"rprop_step", &rprop_step_cpu};

void Rprop::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(rprop_step_kernel, items, options(group));
}

}  // namespace gradus::optim
