// Byte-wise copies between host and device memory. Conversion of layouts and dtypes is done by the copy kernel
// (gradus/tensor/ops/copy.h).
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::internal {

// Returns x in host memory, with the same shape and strides: x itself on CPU devices, else a copy of the
// memory between its first and last element. Blocks until all streams of a CPU device, or the current stream
// of a GPU, have run their queued work. `op` is the name in errors.
// Errors: DeviceError for the meta device; DeviceFailure; exceptions of queued kernels.
Tensor in_host_memory(const Tensor& x, const char* op);

// Copies the row-major host tensor `from` to the row-major GPU tensor `to` of the same shape and dtype, on
// the GPU's current stream. `from` may be modified after the call.
void copy_from_host(const Tensor& to, const Tensor& from, const char* op);

}  // namespace gradus::internal
