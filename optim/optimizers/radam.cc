// RAdam: checks of options and the step.
#include "gradus/optim/optimizers/radam.h"

#include "gradus/optim/rules/radam.h"
#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::optim {

template class OptimizerWith<RAdamOptions>;

void RAdamOptions::check() const {
  check_option(lr >= 0, "RAdam", "lr", ">= 0", lr);
  check_betas("RAdam", betas);
  check_option(eps >= 0, "RAdam", "eps", ">= 0", eps);
  check_option(weight_decay >= 0, "RAdam", "weight_decay", ">= 0", weight_decay);
}

constinit raw::StepSlot<RAdamOptions> radam_step_kernel{"radam_step", &radam_step<raw::ApplyOnCPU>};

void RAdam::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(radam_step_kernel, items, options(group));
}

}  // namespace gradus::optim
