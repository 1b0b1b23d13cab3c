// Implementation of the reducer's checks.
#include "gradus/distributed/data_parallel/internal/reducer_checks.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "gradus/distributed/data_parallel/checksum.h"
#include "gradus/distributed/data_parallel/internal/compare.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::dist::internal {

void check_can_average(std::string_view op, std::string_view what, const Tensor& x) {
  if (x.device().type != DeviceType::kCPU)
    throw DeviceError(op, "expected ", what, " in host memory, got ", describe(x),
                      ": ranks do not average gradients on GPUs yet; train on the CPU, or with one rank");
}

void FiniteCheck::check(size_t param, const Tensor& grad) {
  if (!enabled_) return;
  if (grad.device().type == DeviceType::kCUDA)
    on_gpus_.emplace_back(param, grad);
  else
    check_elements(param, grad);
}

void FiniteCheck::check_elements(size_t param, const Tensor& grad) {
  if (param_ >= 0) return;
  element_ = first_not_finite(grad);
  if (element_ >= 0) param_ = int64_t(param);
}

// Computes the infinity norm per device. Searches the gradients element by element only if a norm is not
// finite.
void FiniteCheck::check_gpu_gradients() {
  std::map<int, std::vector<Tensor>> by_device;
  for (const auto& [param, grad] : on_gpus_) by_device[grad.device().index].push_back(grad);
  std::vector<Tensor> norms;
  for (const auto& [device, grads] : by_device)
    norms.push_back(raw::norm_of(grads, std::numeric_limits<double>::infinity()));
  const bool all_finite =
      std::ranges::all_of(norms, [](const Tensor& norm) { return std::isfinite(norm.item<double>()); });
  for (const auto& [param, grad] : std::exchange(on_gpus_, {}))
    if (!all_finite) check_elements(param, grad);
}

std::string FiniteCheck::findings(const Group& group, const AttachedParams& params) {
  if (!enabled_) return {};
  check_gpu_gradients();
  std::vector<std::vector<int64_t>> all{{param_, element_}};
  if (group.size() > 1) all = gather_lists(Op::kCheckSynchronized, all[0], group);
  std::string text;
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i][0] >= 0)
      text += concat(text.empty() ? "" : "; ", "rank ", group.ranks()[i],
                     " has NaN or infinity in the gradient of ", params.name_of(all[i][0]),
                     ", first in element ", all[i][1]);
  return text;
}

}  // namespace gradus::dist::internal
