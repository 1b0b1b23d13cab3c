// Converts the items of an optimizer step (raw::StepItem: a parameter with gradient, states and step number)
// to kernel arguments: device pointers, grouped by update rule. A call has at least one item, all on one
// device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "gradus/tensor/cuda/kernels/tensor_table.h"
#include "gradus/tensor/ops/formulas/optim_rule.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::cuda {

// Items with equal numbers (step number and scalars on the host), so that one update rule applies to all.
struct StepGroup {
  raw::StepNumbers numbers;
  std::vector<StepArrays> items;
};
// Returns the items, without those of empty parameters, in groups.
std::vector<StepGroup> groups_of(const std::vector<raw::StepItem>& items);

// Items with numbers in device memory (StepItem::on_device), which kernels read. Device pointers.
struct DeviceSteps {
  StepGroup group;               // all items with elements; `numbers` unused
  std::vector<void*> numbers;    // f64[3] of each item: those in `group`, then those of empty parameters
  const float* found = nullptr;  // the found-inf flag; null: no step is skipped
  const double* lr = nullptr;    // null: the learning rate of the options
};
DeviceSteps device_steps_of(const std::vector<raw::StepItem>& items);
// stream_for (operands.h) for all tensors of the items.
cudaStream_t stream_for_items(const std::vector<raw::StepItem>& items);

}  // namespace gradus::cuda
