// Queries about the streams that use a block of device memory.
#pragma once

#include "gradus/tensor/base/device.h"

namespace gradus {

// Returns whether work on streams other than the device's current one may still use the block that begins at p.
// False on CPU devices, whose queues own the tensors of their kernels, and if p is not the start of a block.
bool is_used_on_other_streams(Device device, const void* p);

}  // namespace gradus
