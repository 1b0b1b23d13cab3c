#include "gradus/optim/optimizers/lamb.h"

namespace gradus::optim {

template class OptimizerWith<LAMBOptions>;

void LAMBOptions::check() const {
  check_option(lr >= 0, "LAMB", "lr", ">= 0", lr);
  check_betas("LAMB", betas);
  check_option(eps >= 0, "LAMB", "eps", ">= 0", eps);
  check_option(weight_decay >= 0, "LAMB", "weight_decay", ">= 0", weight_decay);
  check_option(max_norm >= 0, "LAMB", "max_norm", ">= 0", max_norm);
}

void LAMB::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  const LAMBOptions& o = options(group);
  raw::lamb_step_(items, {o.lr, o.betas[0], o.betas[1], o.eps, o.weight_decay, o.max_norm, o.bias_correction,
                          o.maximize});
}

}  // namespace gradus::optim
