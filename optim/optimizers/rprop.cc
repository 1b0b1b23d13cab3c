#include "gradus/optim/optimizers/rprop.h"

namespace gradus::optim {

template class OptimizerWith<RpropOptions>;

void RpropOptions::check() const {
  check_option(lr >= 0, "Rprop", "lr", ">= 0", lr);
  check_option(etas[0] > 0 && etas[0] < 1, "Rprop", "etas[0]", "in (0, 1)", etas[0]);
  check_option(etas[1] > 1, "Rprop", "etas[1]", "> 1", etas[1]);
  check_option(step_sizes[0] >= 0, "Rprop", "step_sizes[0]", ">= 0", step_sizes[0]);
  check_option(step_sizes[1] >= step_sizes[0], "Rprop", "step_sizes[1]", ">= step_sizes[0]", step_sizes[1]);
}

void Rprop::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  const RpropOptions& o = options(group);
  raw::rprop_step_(items, {o.etas[0], o.etas[1], o.step_sizes[0], o.step_sizes[1], o.maximize});
}

}  // namespace gradus::optim
