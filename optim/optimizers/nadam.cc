#include "gradus/optim/optimizers/nadam.h"

namespace gradus::optim {

template class OptimizerWith<NAdamOptions>;

void NAdamOptions::check() const {
  check_option(lr >= 0, "NAdam", "lr", ">= 0", lr);
  check_betas("NAdam", betas);
  check_option(eps >= 0, "NAdam", "eps", ">= 0", eps);
  check_option(weight_decay >= 0, "NAdam", "weight_decay", ">= 0", weight_decay);
  check_option(momentum_decay >= 0, "NAdam", "momentum_decay", ">= 0", momentum_decay);
}

void NAdam::advance_numbers(size_t group, const raw::StepItem& item, std::array<double, 2>& numbers) const {
  numbers[0] *= raw::nadam_mu(options(group).betas[0], options(group).momentum_decay, item.step);
}

void NAdam::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  const NAdamOptions& o = options(group);
  raw::nadam_step_(items,
                   {o.lr, o.betas[0], o.betas[1], o.eps, o.weight_decay, o.momentum_decay, o.maximize});
}

}  // namespace gradus::optim
