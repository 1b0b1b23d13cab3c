// Checksums of tensors: whether ranks have the same, without sending it.
#pragma once

#include <cstdint>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

// Of dtype, shape and elements in row-major order, whatever the layout and device; bit by bit, so
// 0 and -0 differ.
// Source: XXH3, 64 bits (Collet, xxHash).
int64_t checksum_of(const Tensor& x);
// One number for the whole list.
int64_t checksum_of(const std::vector<Tensor>& xs);

// The first element that is NaN or infinite, in row-major order; -1: none. Integers have none.
int64_t first_not_finite(const Tensor& x);

}  // namespace gradus::dist::internal
