#include "gradus/tensor/cuda/ops/apply_rule.h"
#include "gradus/tensor/kernel.h"

namespace gradus::cuda {
namespace {

void average_step_cuda(const Tensor&, const std::vector<raw::StepItem>& items, const double& weight) {
  ApplyOnCuda::rule("average_step", items, 0, false, raw::AverageRuleFactory{weight});
}

[[maybe_unused]] const bool is_set = (raw::average_step_kernel.cuda = &average_step_cuda, true);

}  // namespace
}  // namespace gradus::cuda
