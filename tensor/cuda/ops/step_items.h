// Items of optimizers' steps as kernels take them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <vector>

#include "gradus/tensor/cuda/kernels/tensor_table.h"
#include "gradus/tensor/ops/formulas/optim_rule.h"
#include "gradus/tensor/ops/optim_step.h"

namespace gradus::cuda {

// Items of one step whose numbers are the same: one rule steps them all.
struct StepGroup {
  raw::StepNumbers numbers;
  std::vector<StepArrays> items;
};
// Returns the items with elements in groups.
std::vector<StepGroup> groups_of(const std::vector<raw::StepItem>& items);

// Items whose numbers are on the device.
struct DecidedOnDevice {
  StepGroup group;             // those with elements, all together
  std::vector<void*> numbers;  // of these, then of the others
  const float* found = nullptr;
  const double* lr = nullptr;
};
DecidedOnDevice decided_on_device(const std::vector<raw::StepItem>& items);

// As operands.h has it, for all tensors of the items.
cudaStream_t stream_for_items(const std::vector<raw::StepItem>& items);

}  // namespace gradus::cuda
