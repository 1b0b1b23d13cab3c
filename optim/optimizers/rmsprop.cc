// Adagrad, RMSprop and Adadelta: checks of options (ValueError), names of states, and step kernels on CPUs,
// which apply the rules of optim/rules/rmsprop.h. optim/cuda adds the CUDA kernels to the slots.
#include "gradus/optim/optimizers/rmsprop.h"

#include "gradus/optim/rules/rmsprop.h"
#include "gradus/tensor/cpu/optim_step.h"

namespace gradus::optim {

template class OptimizerWith<AdagradOptions>;
template class KernelOptimizer<AdagradOptions>;
template class OptimizerWith<RMSpropOptions>;
template class KernelOptimizer<RMSpropOptions>;
template class OptimizerWith<AdadeltaOptions>;
template class KernelOptimizer<AdadeltaOptions>;

constinit raw::StepSlot<AdagradOptions> AdagradOptions::step_kernel{"adagrad_step",
                                                                    &adagrad_step<raw::ApplyOnCPU>};
void AdagradOptions::check() const {
  check_not_negative(kName, {{"lr", lr},
                             {"lr_decay", lr_decay},
                             {"weight_decay", weight_decay},
                             {"initial_accumulator_value", initial_accumulator_value},
                             {"eps", eps}});
}
bool AdagradOptions::supports_sparse_rows() const {
  check_no_weight_decay_for_sparse(kName, weight_decay);
  return true;
}

constinit raw::StepSlot<RMSpropOptions> RMSpropOptions::step_kernel{"rmsprop_step",
                                                                    &rmsprop_step<raw::ApplyOnCPU>};
void RMSpropOptions::check() const {
  check_not_negative(
      kName,
      {{"lr", lr}, {"alpha", alpha}, {"eps", eps}, {"weight_decay", weight_decay}, {"momentum", momentum}});
}
std::vector<const char*> RMSpropOptions::state_names() const {
  return {"square_avg", momentum == 0 ? nullptr : "momentum_buffer", centered ? "grad_avg" : nullptr};
}
bool RMSpropOptions::supports_sparse_rows() const {
  check_no_weight_decay_for_sparse(kName, weight_decay);
  return true;
}

constinit raw::StepSlot<AdadeltaOptions> AdadeltaOptions::step_kernel{"adadelta_step",
                                                                      &adadelta_step<raw::ApplyOnCPU>};
void AdadeltaOptions::check() const {
  check_not_negative(kName, {{"lr", lr}, {"eps", eps}, {"weight_decay", weight_decay}});
  check_option(rho >= 0 && rho <= 1, kName, "rho", "in [0, 1]", rho);
}

}  // namespace gradus::optim
