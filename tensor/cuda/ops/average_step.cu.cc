// The CUDA kernel of raw::average_step_: param += weight * (grad - param) for all items in one launch. `grad`
// is the tensor that is averaged; param is the moving average.
#include "gradus/tensor/cuda/ops/apply_rule.h"
#include "gradus/tensor/kernel.h"

namespace gradus::cuda {
namespace {

void average_step_cuda(const Tensor&, const std::vector<raw::StepItem>& items, const double& weight) {
  ApplyOnCuda::rule("average_step", items, /*decay=*/0, /*maximize=*/false, raw::AverageRuleFactory{weight});
}

[[maybe_unused]] const bool is_set = (raw::average_step_kernel.cuda = &average_step_cuda, true);

}  // namespace
}  // namespace gradus::cuda
