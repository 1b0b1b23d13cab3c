// Sets the CUDA kernels of SGD, ASGD, Lion, Rprop, Adagrad, RMSprop and Adadelta, before main, in their
// slots. A kernel applies a rule from optim/rules to every element of every parameter (ApplyOnCuda).
#include "gradus/optim/optimizers/rmsprop.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/optim/rules/rmsprop.h"
#include "gradus/optim/rules/sgd.h"
#include "gradus/tensor/cuda/ops/apply_rule.h"
#include "gradus/tensor/kernel.h"

namespace gradus::optim {
namespace {

using cuda::ApplyOnCuda;

[[maybe_unused]] const bool is_set = (AdadeltaOptions::step_kernel.cuda = &adadelta_step<ApplyOnCuda>,
                                      AdagradOptions::step_kernel.cuda = &adagrad_step<ApplyOnCuda>,
                                      ASGDOptions::step_kernel.cuda = &asgd_step<ApplyOnCuda>,
                                      LionOptions::step_kernel.cuda = &lion_step<ApplyOnCuda>,
                                      RMSpropOptions::step_kernel.cuda = &rmsprop_step<ApplyOnCuda>,
                                      RpropOptions::step_kernel.cuda = &rprop_step<ApplyOnCuda>,
                                      SGDOptions::step_kernel.cuda = &sgd_step<ApplyOnCuda>, true);

}  // namespace
}  // namespace gradus::optim
