#include "gradus/optim/optimizers/rmsprop.h"

#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::optim {

template class OptimizerWith<RMSpropOptions>;

void RMSpropOptions::check() const {
  check_option(lr >= 0, "RMSprop", "lr", ">= 0", lr);
  check_option(alpha >= 0, "RMSprop", "alpha", ">= 0", alpha);
  check_option(eps >= 0, "RMSprop", "eps", ">= 0", eps);
  check_option(weight_decay >= 0, "RMSprop", "weight_decay", ">= 0", weight_decay);
  check_option(momentum >= 0, "RMSprop", "momentum", ">= 0", momentum);
}

std::vector<const char*> RMSprop::state_names(const RMSpropOptions& o) const {
  return {"square_avg", o.momentum == 0 ? nullptr : "momentum_buffer", o.centered ? "grad_avg" : nullptr};
}

namespace {

template <class T, bool momentum, bool centered> struct RMSpropRule {
  static constexpr raw::Uses kUses = {true, momentum, centered};
  T lr, keep, fresh, eps, mass;
  void operator()(T& p, T d, T& v, T& b, T& mean) const {
    v = keep * v + fresh * d * d;
    T square = v;
    if constexpr (centered) {
      mean = keep * mean + fresh * d;
      // Rounding may make the variance of a constant negative.
      square = v - mean * mean;
      square = square > T(0) ? square : square < T(0) ? T(0) : square;
    }
    T change = d / (std::sqrt(square) + eps);
    if constexpr (momentum) change = b = mass * b + change;
    p -= lr * change;
  }
};

template <bool momentum, bool centered>
void rmsprop(const std::vector<raw::StepItem>& items, const RMSpropOptions& o) {
  raw::apply_rule("rmsprop_step", items, o.weight_decay, o.maximize, [&]<class T>(const raw::StepItem&) {
    return RMSpropRule<T, momentum, centered>{T(o.lr), T(o.alpha), T(1 - o.alpha), T(o.eps), T(o.momentum)};
  });
}

void rmsprop_step_cpu(const Tensor&, const std::vector<raw::StepItem>& items, const RMSpropOptions& o) {
  if (o.momentum == 0) return o.centered ? rmsprop<false, true>(items, o) : rmsprop<false, false>(items, o);
  return o.centered ? rmsprop<true, true>(items, o) : rmsprop<true, false>(items, o);
}

}  // namespace

constinit raw::StepSlot<RMSpropOptions> rmsprop_step_kernel{"rmsprop_step", &rmsprop_step_cpu};

void RMSprop::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(rmsprop_step_kernel, items, options(group));
}

}  // namespace gradus::optim
