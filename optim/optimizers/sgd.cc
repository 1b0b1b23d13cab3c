// SGD: checks of options and the step.
#include "gradus/optim/optimizers/sgd.h"

#include "gradus/optim/rules/sgd.h"
#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::optim {

template class OptimizerWith<SGDOptions>;

void SGDOptions::check() const {
  check_option(lr >= 0.0, "SGD", "lr", ">= 0", lr);
  check_option(momentum >= 0, "SGD", "momentum", ">= 0", momentum);
  check_option(weight_decay >= 0, "SGD", "weight_decay", ">= 0", weight_decay);
  check_option(!nesterov || momentum > 0, "SGD", "momentum", "> 0 with nesterov", momentum);
  check_option(!nesterov || dampening == 0, "SGD", "dampening", "0 with nesterov", dampening);
}

std::vector<const char*> SGD::state_names(const SGDOptions& o) const {
  if (o.momentum == 0) return {};
  return {"momentum_buffer"};
}

constinit raw::StepSlot<SGDOptions> sgd_step_kernel{"sgd_step", &sgd_step<raw::ApplyOnCPU>};

void SGD::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(sgd_step_kernel, items, options(group));
}

bool SGD::supports_sparse_rows(size_t group) const {
  check_no_weight_decay_for_sparse("SGD", options(group).weight_decay);
  return options(group).momentum == 0;  // momentum changes all rows in every step
}

}  // namespace gradus::optim
