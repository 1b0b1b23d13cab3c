// Registers the CUDA kernels of Adam, AdamW, Adamax, NAdam and RAdam in their kernel slots.
#include "gradus/optim/optimizers/adam.h"
#include "gradus/optim/optimizers/adamax.h"
#include "gradus/optim/optimizers/nadam.h"
#include "gradus/optim/optimizers/radam.h"
#include "gradus/optim/rules/adam.h"
#include "gradus/optim/rules/adamax.h"
#include "gradus/optim/rules/nadam.h"
#include "gradus/optim/rules/radam.h"
#include "gradus/tensor/cuda/ops/apply_rule.h"
#include "gradus/tensor/kernel.h"

namespace gradus::optim {
namespace {

using cuda::ApplyOnCuda;

[[maybe_unused]] const bool is_set =
    (adam_step_kernel.cuda = &adam_step<ApplyOnCuda>, adamw_step_kernel.cuda = &adamw_step<ApplyOnCuda>,
     adamax_step_kernel.cuda = &adamax_step<ApplyOnCuda>, nadam_step_kernel.cuda = &nadam_step<ApplyOnCuda>,
     radam_step_kernel.cuda = &radam_step<ApplyOnCuda>, true);

}  // namespace
}  // namespace gradus::optim
