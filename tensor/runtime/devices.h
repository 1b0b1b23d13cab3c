// Which GPUs a program can use.
#pragma once

#include <cstdint>
#include <string>

#include "gradus/tensor/base/device.h"

namespace gradus {

struct DeviceProperties {
  std::string name;
  int64_t memory_bytes = 0;  // of the device, used or free
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
};

// Returns how many CUDA devices there are: 0 where the program was built without CUDA, or there is no driver
// that it can use. `to(x, "cuda:0")` then throws a DeviceError that says why. Devices with a compute
// capability below 8.0 count, too. To ask is to use them: a child that is forked later cannot.
// Errors: StateError in a child of fork() whose parent used them; DeviceFailure where the driver fails.
int cuda_device_count();

// Errors: DeviceError that says why the device cannot be used; StateError and DeviceFailure as
// cuda_device_count().
DeviceProperties device_properties(Device device);

}  // namespace gradus
