// Sets the CUDA kernels of Adam, AdamW, Adamax, NAdam and RAdam, before main, in their slots.
// A kernel applies the rule from optim/rules/adam.h to every element of every parameter (ApplyOnCuda).
#include "gradus/optim/optimizers/adam.h"
#include "gradus/optim/rules/adam.h"
#include "gradus/tensor/cuda/ops/apply_rule.h"
#include "gradus/tensor/kernel.h"

namespace gradus::optim {
namespace {

using cuda::ApplyOnCuda;

[[maybe_unused]] const bool is_set = (AdamOptions::step_kernel.cuda = &adam_step<ApplyOnCuda>,
                                      AdamWOptions::step_kernel.cuda = &adamw_step<ApplyOnCuda>,
                                      AdamaxOptions::step_kernel.cuda = &adamax_step<ApplyOnCuda>,
                                      NAdamOptions::step_kernel.cuda = &nadam_step<ApplyOnCuda>,
                                      RAdamOptions::step_kernel.cuda = &radam_step<ApplyOnCuda>, true);

}  // namespace
}  // namespace gradus::optim
