// Sets the CUDA kernels of LARS and LAMB, before main, in their slots. rule_by_norms runs
// the two passes of a rule from optim/rules/lars.h over each parameter: norms, then update.
#include "gradus/optim/optimizers/lars.h"
#include "gradus/optim/rules/lars.h"
#include "gradus/tensor/cuda/ops/apply_rule.h"
#include "gradus/tensor/kernel.h"

namespace gradus::optim {
namespace {

void lars_step_cuda(const Tensor&, const std::vector<raw::StepItem>& items, const LARSOptions& o) {
  cuda::ApplyOnCuda::rule_by_norms("lars_step", items, LARSRuleFactory::of(o));
}

void lamb_step_cuda(const Tensor&, const std::vector<raw::StepItem>& items, const LAMBOptions& o) {
  cuda::ApplyOnCuda::rule_by_norms("lamb_step", items, LAMBRuleFactory::of(o));
}

[[maybe_unused]] const bool is_set =
    (LARSOptions::step_kernel.cuda = &lars_step_cuda, LAMBOptions::step_kernel.cuda = &lamb_step_cuda, true);

}  // namespace
}  // namespace gradus::optim
