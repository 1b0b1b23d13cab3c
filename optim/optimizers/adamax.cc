#include "gradus/optim/optimizers/adamax.h"

namespace gradus::optim {

template class OptimizerWith<AdamaxOptions>;

void AdamaxOptions::check() const {
  check_option(lr >= 0, "Adamax", "lr", ">= 0", lr);
  check_betas("Adamax", betas);
  check_option(eps >= 0, "Adamax", "eps", ">= 0", eps);
  check_option(weight_decay >= 0, "Adamax", "weight_decay", ">= 0", weight_decay);
}

void Adamax::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  const AdamaxOptions& o = options(group);
  raw::adamax_step_(items, {o.lr, o.betas[0], o.betas[1], o.eps, o.weight_decay, o.maximize});
}

}  // namespace gradus::optim
