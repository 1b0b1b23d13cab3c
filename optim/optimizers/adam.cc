// Adam and AdamW: checks of options and the steps.
#include "gradus/optim/optimizers/adam.h"

#include "gradus/optim/rules/adam.h"
#include "gradus/tensor/cpu/optim_step.h"

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

}  // namespace

void AdamOptions::check() const { check_adam(*this, "Adam"); }
void AdamWOptions::check() const { check_adam(*this, "AdamW"); }

std::vector<const char*> Adam::state_names(const AdamOptions& o) const { return adam_states(o.amsgrad); }
std::vector<const char*> AdamW::state_names(const AdamWOptions& o) const { return adam_states(o.amsgrad); }

constinit raw::StepSlot<AdamOptions> adam_step_kernel{"adam_step", &adam_step<raw::ApplyOnCPU>};
constinit raw::StepSlot<AdamWOptions> adamw_step_kernel{"adamw_step", &adamw_step<raw::ApplyOnCPU>};

void Adam::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(adam_step_kernel, items, options(group));
}
void AdamW::step_group(size_t group, const std::vector<raw::StepItem>& items) {
  raw::run_step(adamw_step_kernel, items, options(group));
}

bool Adam::supports_sparse_rows(size_t group) const {
  check_no_weight_decay_for_sparse("Adam", options(group).weight_decay);
  return true;
}
bool AdamW::supports_sparse_rows(size_t group) const {
  check_no_weight_decay_for_sparse("AdamW", options(group).weight_decay);
  return true;
}

}  // namespace gradus::optim
