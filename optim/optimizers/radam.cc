#include "gradus/optim/optimizers/radam.h"

namespace gradus::optim {

template class OptimizerWith<RAdamOptions>;

void RAdamOptions::check() const {
  check_option(lr >= 0, "RAdam", "lr", ">= 0", lr);
  check_betas("RAdam", betas);
  check_option(eps >= 0, "RAdam", "eps", ">= 0", eps);
  check_option(weight_decay >= 0, "RAdam", "weight_decay", ">= 0", weight_decay);
}

void RAdam::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  const RAdamOptions& o = options(group);
  raw::radam_step_(items, {o.lr, o.betas[0], o.betas[1], o.eps, o.weight_decay, o.maximize});
}

}  // namespace gradus::optim
