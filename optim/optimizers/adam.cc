#include "gradus/optim/optimizers/adam.h"

namespace gradus::optim {

template class OptimizerWith<AdamOptions>;
template class OptimizerWith<AdamWOptions>;

namespace {

template <class Options> void check_adam(const Options& o, const char* kind) {
  check_option(o.lr >= 0, kind, "lr", ">= 0", o.lr);
  check_betas(kind, o.betas);
  check_option(o.eps >= 0, kind, "eps", ">= 0", o.eps);
  check_option(o.weight_decay >= 0, kind, "weight_decay", ">= 0", o.weight_decay);
}

std::vector<const char*> adam_states(bool amsgrad) {
  if (amsgrad) return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  return {"exp_avg", "exp_avg_sq"};
}

template <class Options> raw::AdamStep adam_step(const Options& o, bool decoupled) {
  return {o.lr, o.betas[0], o.betas[1], o.eps, o.weight_decay, decoupled, o.amsgrad, o.maximize};
}

}  // namespace

void AdamOptions::check() const { check_adam(*this, "Adam"); }
void AdamWOptions::check() const { check_adam(*this, "AdamW"); }

std::vector<const char*> Adam::state_names(const AdamOptions& o) const { return adam_states(o.amsgrad); }
std::vector<const char*> AdamW::state_names(const AdamWOptions& o) const { return adam_states(o.amsgrad); }

void Adam::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::adam_step_(items, adam_step(options(group), false));
}
void AdamW::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::adam_step_(items, adam_step(options(group), true));
}

}  // namespace gradus::optim
