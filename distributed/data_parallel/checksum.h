// Checksums of tensors, to compare tensors between ranks without sending them. Tensors are defined, of any
// layout and device; a call waits for the devices' queued work. Checksums of GPUs are computed there, and equal the CPU's.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

// Returns a checksum of dtype, shape, and elements in row-major order. Elements count bit by bit, so 0 and -0
// differ. Any int64 may be the result.
int64_t checksum_of(const Tensor& x);
// Returns the checksum of each tensor. Waits once for each GPU.
std::vector<int64_t> checksums_of(const std::vector<Tensor>& xs);
// Returns one checksum of the tensors in their order.
int64_t checksum_of(const std::vector<Tensor>& xs);
// Returns a checksum of the text.
int64_t checksum_of(std::string_view text);

// Returns the row-major index of the first element that is NaN or infinite. Returns -1 if there is none or if
// x has an integer dtype.
int64_t first_not_finite(const Tensor& x);

}  // namespace gradus::dist::internal
