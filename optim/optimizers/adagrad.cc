#include "gradus/optim/optimizers/adagrad.h"

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

void Adagrad::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  const AdagradOptions& o = options(group);
  raw::adagrad_step_(items, {o.lr, o.lr_decay, o.eps, o.weight_decay, o.maximize});
}

}  // namespace gradus::optim
