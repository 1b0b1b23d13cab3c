#include "gradus/optim/optimizers/lars.h"

namespace gradus::optim {

template class OptimizerWith<LARSOptions>;

void LARSOptions::check() const {
  check_option(lr >= 0.0, "LARS", "lr", ">= 0", lr);
  check_option(momentum >= 0, "LARS", "momentum", ">= 0", momentum);
  check_option(weight_decay >= 0, "LARS", "weight_decay", ">= 0", weight_decay);
  check_option(trust_coefficient >= 0, "LARS", "trust_coefficient", ">= 0", trust_coefficient);
  check_option(eps >= 0, "LARS", "eps", ">= 0", eps);
}

void LARS::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  const LARSOptions& o = options(group);
  raw::lars_step_(items, {o.lr, o.momentum, o.weight_decay, o.trust_coefficient, o.eps, o.maximize});
}

}  // namespace gradus::optim
