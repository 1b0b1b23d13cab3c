#include "gradus/optim/optimizers/adadelta.h"

namespace gradus::optim {

template class OptimizerWith<AdadeltaOptions>;

void AdadeltaOptions::check() const {
  check_option(lr >= 0, "Adadelta", "lr", ">= 0", lr);
  check_option(rho >= 0 && rho <= 1, "Adadelta", "rho", "in [0, 1]", rho);
  check_option(eps >= 0, "Adadelta", "eps", ">= 0", eps);
  check_option(weight_decay >= 0, "Adadelta", "weight_decay", ">= 0", weight_decay);
}

void Adadelta::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  const AdadeltaOptions& o = options(group);
  raw::adadelta_step_(items, {o.lr, o.rho, o.eps, o.weight_decay, o.maximize});
}

}  // namespace gradus::optim
