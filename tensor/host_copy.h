// Byte-wise copies between host and device memory. Conversion of layouts and dtypes is done by the copy kernel
// (gradus/tensor/ops/copy.h).
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::internal {

// Returns x in host memory, with the same shape and strides, after its device has computed it: x itself on CPU
// devices, else a copy of the memory between its first and last element. Blocks. `op` is the name in errors.
// Errors: DeviceError for the meta device; exceptions of queued kernels.
Tensor in_host_memory(const Tensor& x, const char* op);

// Copies the row-major host tensor `from` to the device tensor `to` of the same shape and dtype, on the device's
// current stream. `from` may be modified after the call.
void copy_from_host(const Tensor& to, const Tensor& from, const char* op);

}  // namespace gradus::internal
