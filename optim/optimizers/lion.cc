#include "gradus/optim/optimizers/lion.h"

namespace gradus::optim {

template class OptimizerWith<LionOptions>;

void LionOptions::check() const {
  check_option(lr >= 0, "Lion", "lr", ">= 0", lr);
  check_betas("Lion", betas);
  check_option(weight_decay >= 0, "Lion", "weight_decay", ">= 0", weight_decay);
}

void Lion::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  const LionOptions& o = options(group);
  raw::lion_step_(items, {o.lr, o.betas[0], o.betas[1], o.weight_decay, o.maximize});
}

}  // namespace gradus::optim
