// SGD, ASGD, Lion and Rprop: checks of their options (ValueError), the names of their states, and their step
// kernels on CPUs, which apply the rules of optim/rules/sgd.h. optim/cuda adds the CUDA kernels to the slots.
#include "gradus/optim/optimizers/sgd.h"

#include "gradus/optim/rules/sgd.h"
#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::optim {

template class OptimizerWith<SGDOptions>;
template class KernelOptimizer<SGDOptions>;
template class OptimizerWith<ASGDOptions>;
template class KernelOptimizer<ASGDOptions>;
template class OptimizerWith<LionOptions>;
template class KernelOptimizer<LionOptions>;
template class OptimizerWith<RpropOptions>;
template class KernelOptimizer<RpropOptions>;

constinit raw::StepSlot<SGDOptions> SGDOptions::step_kernel{"sgd_step", &sgd_step<raw::ApplyOnCPU>};
void SGDOptions::check() const {
  check_not_negative(kName, {{"lr", lr}, {"momentum", momentum}, {"weight_decay", weight_decay}});
  check_option(!nesterov || momentum > 0, kName, "momentum", "> 0 with nesterov", momentum);
  check_option(!nesterov || dampening == 0, kName, "dampening", "0 with nesterov", dampening);
}
std::vector<const char*> SGDOptions::state_names() const {
  if (momentum == 0) return {};
  return {"momentum_buffer"};
}
bool SGDOptions::supports_sparse_rows() const {
  check_no_weight_decay_for_sparse(kName, weight_decay);
  return momentum == 0;  // momentum changes all rows in every step
}

constinit raw::StepSlot<ASGDOptions> ASGDOptions::step_kernel{"asgd_step", &asgd_step<raw::ApplyOnCPU>};
void ASGDOptions::check() const {
  // A negative lambd would let the rate eta diverge or become negative.
  check_not_negative(kName, {{"lr", lr}, {"weight_decay", weight_decay}, {"lambd", lambd}});
}
// Sets numbers = {eta, mu} for the next step, item.step + 1.
void ASGDOptions::advance_numbers(const raw::StepItem& item, std::array<double, 2>& numbers) const {
  raw::StepNumbers next{.step = double(item.step), .more = {}};
  ASGDRuleFactory::of(*this).advance(next);
  numbers = {next.more[0], next.more[1]};
}

constinit raw::StepSlot<LionOptions> LionOptions::step_kernel{"lion_step", &lion_step<raw::ApplyOnCPU>};
void LionOptions::check() const {
  check_not_negative(kName, {{"lr", lr}, {"weight_decay", weight_decay}});
  check_betas(kName, betas);
}

constinit raw::StepSlot<RpropOptions> RpropOptions::step_kernel{"rprop_step", &rprop_step<raw::ApplyOnCPU>};
void RpropOptions::check() const {
  check_not_negative(kName, {{"lr", lr}, {"step_sizes[0]", step_sizes[0]}});
  check_option(etas[0] > 0 && etas[0] < 1, kName, "etas[0]", "in (0, 1)", etas[0]);
  check_option(etas[1] > 1, kName, "etas[1]", "> 1", etas[1]);
  check_option(step_sizes[1] >= step_sizes[0], kName, "step_sizes[1]", ">= step_sizes[0]", step_sizes[1]);
}

}  // namespace gradus::optim
