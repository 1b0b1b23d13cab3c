// Collects device pointers of an optimizer step's items: groups items on the host by equal step numbers and
// scalars, or lists the numbers in device memory, those of empty parameters last.
#include "gradus/tensor/cuda/ops/step_items.h"

#include <algorithm>

#include "gradus/tensor/cuda/ops/operands.h"

namespace gradus::cuda {
namespace {

StepArrays arrays_of(const raw::StepItem& item) {
  StepArrays arrays{item.param.raw_ptr(), item.grad.raw_ptr(), {}, item.param.numel()};
  for (size_t k = 0; k < item.state.size(); ++k)
    if (item.state[k].defined()) arrays.state[k] = item.state[k].raw_ptr();
  return arrays;
}

}  // namespace

std::vector<StepGroup> groups_of(const std::vector<raw::StepItem>& items) {
  std::vector<StepGroup> groups;
  for (const raw::StepItem& item : items) {
    if (item.param.numel() == 0) continue;
    const raw::StepNumbers n = raw::numbers_of(item);
    auto group =
        std::find_if(groups.begin(), groups.end(), [&](const StepGroup& g) { return g.numbers == n; });
    if (group == groups.end()) group = groups.insert(group, {n, {}});
    group->items.push_back(arrays_of(item));
  }
  return groups;
}

DeviceSteps device_steps_of(const std::vector<raw::StepItem>& items) {
  DeviceSteps all;
  const raw::StepItem& first = items.front();
  if (first.found.defined()) all.found = first.found.ptr<float>();
  if (first.lr.defined()) all.lr = first.lr.ptr<double>();
  for (const bool is_empty : {false, true})
    for (const raw::StepItem& item : items) {
      if ((item.param.numel() == 0) != is_empty) continue;
      all.numbers.push_back(item.on_device.raw_ptr());
      if (!is_empty) all.group.items.push_back(arrays_of(item));
    }
  return all;
}

cudaStream_t stream_for_items(const std::vector<raw::StepItem>& items) {
  std::vector<const Tensor*> all;
  for (const raw::StepItem& item : items) for_each_tensor(item, [&](const Tensor& x) { all.push_back(&x); });
  return stream_for(all);
}

}  // namespace gradus::cuda
