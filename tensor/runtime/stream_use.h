// Which streams use the memory of a device.
#pragma once

#include "gradus/tensor/base/device.h"

namespace gradus {

// Returns whether work on other streams than the device's current one may still use the block that begins at p. False on
// CPU devices, whose queues keep the tensors of their kernels, and for what is no block.
bool is_used_on_other_streams(Device device, const void* p);

}  // namespace gradus
