#include "gradus/optim/optimizers/rmsprop.h"

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

void RMSprop::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  const RMSpropOptions& o = options(group);
  raw::rmsprop_step_(items, {o.lr, o.alpha, o.eps, o.weight_decay, o.momentum, o.centered, o.maximize});
}

}  // namespace gradus::optim
