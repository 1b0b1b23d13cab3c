// Lion: checks of options and the step.
#include "gradus/optim/optimizers/lion.h"

#include "gradus/optim/rules/lion.h"
#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::optim {

template class OptimizerWith<LionOptions>;

void LionOptions::check() const {
  check_option(lr >= 0, "Lion", "lr", ">= 0", lr);
  check_betas("Lion", betas);
  check_option(weight_decay >= 0, "Lion", "weight_decay", ">= 0", weight_decay);
}

constinit raw::StepSlot<LionOptions> lion_step_kernel{"lion_step", &lion_step<raw::ApplyOnCPU>};

void Lion::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(lion_step_kernel, items, options(group));
}

}  // namespace gradus::optim
