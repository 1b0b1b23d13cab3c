// NAdam: checks of options and the step.
#include "gradus/optim/optimizers/nadam.h"

#include "gradus/optim/rules/nadam.h"
#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::optim {

template class OptimizerWith<NAdamOptions>;

void NAdamOptions::check() const {
  check_option(lr >= 0, "NAdam", "lr", ">= 0", lr);
  check_betas("NAdam", betas);
  check_option(eps >= 0, "NAdam", "eps", ">= 0", eps);
  check_option(weight_decay >= 0, "NAdam", "weight_decay", ">= 0", weight_decay);
  check_option(momentum_decay >= 0, "NAdam", "momentum_decay", ">= 0", momentum_decay);
}

constinit raw::StepSlot<NAdamOptions> nadam_step_kernel{"nadam_step", &nadam_step<raw::ApplyOnCPU>};

void NAdam::advance_numbers(size_t group, const raw::StepItem& item, std::array<double, 2>& numbers) const {
  numbers[0] *= MakeNAdam::of(options(group)).mu(double(item.step));
}

void NAdam::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(nadam_step_kernel, items, options(group));
}

}  // namespace gradus::optim
