// A batch is tensors that have the same rows: the first of their dims.
#pragma once

#include <cstdint>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

// Returns the rows of a batch: the first size that all its tensors have.
// Errors: ShapeError for tensors with other rows, or without dims, and for a batch without rows.
int64_t rows_of(const std::vector<Tensor>& inputs, const std::vector<Tensor>& targets);

// Returns views of rows begin to end - 1.
std::vector<Tensor> rows_between(const std::vector<Tensor>& tensors, int64_t begin, int64_t end);

// Returns the tensors on the device on which a stage is about to compute.
std::vector<Tensor> here(std::vector<Tensor> tensors);

}  // namespace gradus::dist::internal
