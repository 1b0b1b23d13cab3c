#include "gradus/optim/optimizers/sgd.h"

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

void SGD::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  const SGDOptions& o = options(group);
  raw::sgd_step_(items, {o.lr, o.momentum, o.dampening, o.weight_decay, o.nesterov, o.maximize});
}

}  // namespace gradus::optim
