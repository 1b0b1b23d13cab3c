// Adam, AdamW, SparseAdam, Adamax, NAdam and RAdam: for each optimizer, the checks of its options (ValueError), the names of
// its states, and the slot of its step kernel with the CPU kernel. Optimizer::step() runs the kernel.
// Formulas: optim/optimizers/adam.h. The updates of one element, shared by the CPU and CUDA kernels:
// optim/rules/adam.h. The CUDA kernels are added to the slots in optim/cuda.
#include "gradus/optim/optimizers/adam.h"

#include "gradus/optim/rules/adam.h"
#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::optim {

template class OptimizerWith<AdamOptions>;
template class KernelOptimizer<AdamOptions>;
template class OptimizerWith<AdamWOptions>;
template class KernelOptimizer<AdamWOptions>;
template class OptimizerWith<SparseAdamOptions>;
template class KernelOptimizer<SparseAdamOptions>;
template class OptimizerWith<AdamaxOptions>;
template class KernelOptimizer<AdamaxOptions>;
template class OptimizerWith<NAdamOptions>;
template class KernelOptimizer<NAdamOptions>;
template class OptimizerWith<RAdamOptions>;
template class KernelOptimizer<RAdamOptions>;

namespace {

template <class Options> void check_adam(const Options& o) {
  check_not_negative(o.kName, {{"lr", o.lr}, {"eps", o.eps}, {"weight_decay", o.weight_decay}});
  check_betas(o.kName, o.betas);
}

// Names of the state tensors, as in torch.optim: the moving averages of g and of g^2, the maximum of those.
std::vector<const char*> adam_states(bool amsgrad) {
  if (amsgrad) return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  return {"exp_avg", "exp_avg_sq"};
}

}  // namespace

constinit raw::StepSlot<AdamOptions> AdamOptions::step_kernel{"adam_step", &adam_step<raw::ApplyOnCPU>};
void AdamOptions::check() const { check_adam(*this); }
std::vector<const char*> AdamOptions::state_names() const { return adam_states(amsgrad); }
bool AdamOptions::supports_sparse_rows() const {
  check_no_weight_decay_for_sparse(kName, weight_decay);
  return true;
}

constinit raw::StepSlot<AdamWOptions> AdamWOptions::step_kernel{"adamw_step", &adamw_step<raw::ApplyOnCPU>};
void AdamWOptions::check() const { check_adam(*this); }
std::vector<const char*> AdamWOptions::state_names() const { return adam_states(amsgrad); }
bool AdamWOptions::supports_sparse_rows() const {
  check_no_weight_decay_for_sparse(kName, weight_decay);
  return true;
}

constinit raw::StepSlot<SparseAdamOptions> SparseAdamOptions::step_kernel{"sparse_adam_step",
                                                                          &sparse_adam_step<raw::ApplyOnCPU>};
void SparseAdamOptions::check() const {
  check_not_negative(kName, {{"lr", lr}});
  check_betas(kName, betas);
  check_option(eps > 0, kName, "eps", "> 0", eps);
}

constinit raw::StepSlot<AdamaxOptions> AdamaxOptions::step_kernel{"adamax_step",
                                                                  &adamax_step<raw::ApplyOnCPU>};
void AdamaxOptions::check() const { check_adam(*this); }

constinit raw::StepSlot<NAdamOptions> NAdamOptions::step_kernel{"nadam_step", &nadam_step<raw::ApplyOnCPU>};
void NAdamOptions::check() const {
  check_adam(*this);
  check_not_negative(kName, {{"momentum_decay", momentum_decay}});
}
// Multiplies numbers[0] by mu_t for t = item.step: after step t it is the product mu_1 ... mu_t.
void NAdamOptions::advance_numbers(const raw::StepItem& item, std::array<double, 2>& numbers) const {
  numbers[0] *= NAdamRuleFactory::of(*this).mu(double(item.step));
}

constinit raw::StepSlot<RAdamOptions> RAdamOptions::step_kernel{"radam_step", &radam_step<raw::ApplyOnCPU>};
void RAdamOptions::check() const { check_adam(*this); }

}  // namespace gradus::optim
