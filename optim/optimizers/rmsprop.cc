// RMSprop: checks of options and the step.
#include "gradus/optim/optimizers/rmsprop.h"

#include "gradus/optim/rules/rmsprop.h"
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

constinit raw::StepSlot<RMSpropOptions> rmsprop_step_kernel{"rmsprop_step", &rmsprop_step<raw::ApplyOnCPU>};

void RMSprop::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(rmsprop_step_kernel, items, options(group));
}

bool RMSprop::supports_sparse_rows(size_t group) const {
  check_no_weight_decay_for_sparse("RMSprop", options(group).weight_decay);
  return true;
}

}  // namespace gradus::optim
