// Registers the CUDA kernels of the other optimizers with element-wise rules in their kernel slots.
#include "gradus/optim/optimizers/adadelta.h"
#include "gradus/optim/optimizers/adagrad.h"
#include "gradus/optim/optimizers/asgd.h"
#include "gradus/optim/optimizers/lion.h"
#include "gradus/optim/optimizers/rmsprop.h"
#include "gradus/optim/optimizers/rprop.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/optim/rules/adadelta.h"
#include "gradus/optim/rules/adagrad.h"
#include "gradus/optim/rules/asgd.h"
#include "gradus/optim/rules/lion.h"
#include "gradus/optim/rules/rmsprop.h"
#include "gradus/optim/rules/rprop.h"
#include "gradus/optim/rules/sgd.h"
#include "gradus/tensor/cuda/ops/apply_rule.h"
#include "gradus/tensor/kernel.h"

namespace gradus::optim {
namespace {

using cuda::ApplyOnCuda;

[[maybe_unused]] const bool is_set =
    (adadelta_step_kernel.cuda = &adadelta_step<ApplyOnCuda>,
     adagrad_step_kernel.cuda = &adagrad_step<ApplyOnCuda>, asgd_step_kernel.cuda = &asgd_step<ApplyOnCuda>,
     lion_step_kernel.cuda = &lion_step<ApplyOnCuda>, rmsprop_step_kernel.cuda = &rmsprop_step<ApplyOnCuda>,
     rprop_step_kernel.cuda = &rprop_step<ApplyOnCuda>, sgd_step_kernel.cuda = &sgd_step<ApplyOnCuda>, true);

}  // namespace
}  // namespace gradus::optim
