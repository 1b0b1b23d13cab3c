// ASGD: checks of options and the step.
#include "gradus/optim/optimizers/asgd.h"

#include "gradus/optim/rules/asgd.h"
#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::optim {

template class OptimizerWith<ASGDOptions>;

void ASGDOptions::check() const {
  check_option(lr >= 0, "ASGD", "lr", ">= 0", lr);
  check_option(weight_decay >= 0, "ASGD", "weight_decay", ">= 0", weight_decay);
  // A negative lambd would let the rate eta diverge or become negative.
  check_option(lambd >= 0, "ASGD", "lambd", ">= 0", lambd);
}

void ASGD::advance_numbers(size_t group, const raw::StepItem& item, std::array<double, 2>& numbers) const {
  raw::StepNumbers next{.step = double(item.step), .more = {}};
  MakeASGD::of(options(group)).advance(next);
  numbers = {next.more[0], next.more[1]};
}

constinit raw::StepSlot<ASGDOptions> asgd_step_kernel{"asgd_step", &asgd_step<raw::ApplyOnCPU>};

void ASGD::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(asgd_step_kernel, items, options(group));
}

}  // namespace gradus::optim
