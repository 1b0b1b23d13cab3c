// Helpers for batches: lists of tensors with the same size of dim 0, the rows.
#pragma once

#include <cstdint>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

// Returns the number of rows of a batch: size(0) of all its tensors.
// Errors: ShapeError for tensors with different numbers of rows or without dims, and for a batch without
// rows.
int64_t rows_of(const std::vector<Tensor>& inputs, const std::vector<Tensor>& targets);

// Returns views of rows [begin, end).
std::vector<Tensor> slice_rows(const std::vector<Tensor>& tensors, int64_t begin, int64_t end);

// Returns the tensors on the Context's device, which is the current stage's.
std::vector<Tensor> on_current_device(std::vector<Tensor> tensors);

}  // namespace gradus::dist::internal
