// Rprop: checks of options and the step.
#include "gradus/optim/optimizers/rprop.h"

#include "gradus/optim/rules/rprop.h"
#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::optim {

template class OptimizerWith<RpropOptions>;

void RpropOptions::check() const {
  check_option(lr >= 0, "Rprop", "lr", ">= 0", lr);
  check_option(etas[0] > 0 && etas[0] < 1, "Rprop", "etas[0]", "in (0, 1)", etas[0]);
  check_option(etas[1] > 1, "Rprop", "etas[1]", "> 1", etas[1]);
  check_option(step_sizes[0] >= 0, "Rprop", "step_sizes[0]", ">= 0", step_sizes[0]);
  check_option(step_sizes[1] >= step_sizes[0], "Rprop", "step_sizes[1]", ">= step_sizes[0]", step_sizes[1]);
}

constinit raw::StepSlot<RpropOptions> rprop_step_kernel{"rprop_step", &rprop_step<raw::ApplyOnCPU>};

void Rprop::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(rprop_step_kernel, items, options(group));
}

}  // namespace gradus::optim
