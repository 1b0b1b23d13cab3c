// Adamax: checks of options and the step.
#include "gradus/optim/optimizers/adamax.h"

#include "gradus/optim/rules/adamax.h"
#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::optim {

template class OptimizerWith<AdamaxOptions>;

void AdamaxOptions::check() const {
  check_option(lr >= 0, "Adamax", "lr", ">= 0", lr);
  check_betas("Adamax", betas);
  check_option(eps >= 0, "Adamax", "eps", ">= 0", eps);
  check_option(weight_decay >= 0, "Adamax", "weight_decay", ">= 0", weight_decay);
}

constinit raw::StepSlot<AdamaxOptions> adamax_step_kernel{"adamax_step", &adamax_step<raw::ApplyOnCPU>};

void Adamax::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(adamax_step_kernel, items, options(group));
}

}  // namespace gradus::optim
