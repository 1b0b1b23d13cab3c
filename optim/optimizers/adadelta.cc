// Adadelta: checks of options and the step.
#include "gradus/optim/optimizers/adadelta.h"

#include "gradus/optim/rules/adadelta.h"
#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::optim {

template class OptimizerWith<AdadeltaOptions>;

void AdadeltaOptions::check() const {
  check_option(lr >= 0, "Adadelta", "lr", ">= 0", lr);
  check_option(rho >= 0 && rho <= 1, "Adadelta", "rho", "in [0, 1]", rho);
  check_option(eps >= 0, "Adadelta", "eps", ">= 0", eps);
  check_option(weight_decay >= 0, "Adadelta", "weight_decay", ">= 0", weight_decay);
}

constinit raw::StepSlot<AdadeltaOptions> adadelta_step_kernel{"adadelta_step",
                                                              &adadelta_step<raw::ApplyOnCPU>};

void Adadelta::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(adadelta_step_kernel, items, options(group));
}

}  // namespace gradus::optim
