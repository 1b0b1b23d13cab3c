// Adagrad: checks of options and the step.
#include "gradus/optim/optimizers/adagrad.h"

#include "gradus/optim/rules/adagrad.h"
#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::optim {

template class OptimizerWith<AdagradOptions>;

void AdagradOptions::check() const {
  check_option(lr >= 0, "Adagrad", "lr", ">= 0", lr);
  check_option(lr_decay >= 0, "Adagrad", "lr_decay", ">= 0", lr_decay);
  check_option(weight_decay >= 0, "Adagrad", "weight_decay", ">= 0", weight_decay);
  check_option(initial_accumulator_value >= 0, "Adagrad", "initial_accumulator_value", ">= 0",
               initial_accumulator_value);
  check_option(eps >= 0, "Adagrad", "eps", ">= 0", eps);
}

constinit raw::StepSlot<AdagradOptions> adagrad_step_kernel{"adagrad_step", &adagrad_step<raw::ApplyOnCPU>};

void Adagrad::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(adagrad_step_kernel, items, options(group));
}

bool Adagrad::supports_sparse_rows(size_t group) const {
  check_no_weight_decay_for_sparse("Adagrad", options(group).weight_decay);
  return true;
}

}  // namespace gradus::optim
