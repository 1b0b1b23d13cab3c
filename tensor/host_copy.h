// Copies between the host's memory and a device's, of bytes as they lie. Layouts and dtypes are the copy
// kernel's affair (gradus/tensor/ops/copy.h).
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::internal {

// Returns x's elements where the host can read them, as soon as they are there: x itself on CPU devices, else
// a copy of what lies between its first and last element. `op` is the name in errors.
// Errors: DeviceError for the meta device; what a queued kernel threw.
Tensor in_host_memory(const Tensor& x, const char* op);

// Copies `from`, a row-major tensor in the host's memory, to `to`, one like it on a device: on its current
// stream. `from` may change when this returns.
void copy_from_host(const Tensor& to, const Tensor& from, const char* op);

}  // namespace gradus::internal
