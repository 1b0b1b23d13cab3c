#include "gradus/tensor/cuda/ops/step_items.h"

#include <algorithm>

#include "gradus/tensor/cuda/ops/operands.h"

namespace gradus::cuda {

std::vector<StepGroup> groups_of(const std::vector<raw::StepItem>& items) {
  std::vector<StepGroup> groups;
  for (const raw::StepItem& item : items) {
    if (item.param.numel() == 0) continue;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const StepGroup& g) {
      return g.first.step == item.step && g.first.numbers == item.numbers;
    });
    if (group == groups.end()) group = groups.insert(group, {item, {}});
    StepArrays arrays{item.param.raw_ptr(), item.grad.raw_ptr(), {}, item.param.numel()};
    for (size_t k = 0; k < item.state.size(); ++k)
      if (item.state[k].defined()) arrays.state[k] = item.state[k].raw_ptr();
    group->items.push_back(arrays);
  }
  return groups;
}

cudaStream_t stream_for_items(const std::vector<raw::StepItem>& items) {
  std::vector<const Tensor*> all;
  for (const raw::StepItem& item : items) for_each_tensor(item, [&](const Tensor& x) { all.push_back(&x); });
  return stream_for(all);
}

Tensor workspace_for(const raw::StepItem& item, int64_t bytes) {
  return empty({bytes}, {DType::kU8, item.param.device()});
}

}  // namespace gradus::cuda
