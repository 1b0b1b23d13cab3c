// Queries about the GPUs that a program can use.
#pragma once

#include <cstdint>
#include <string>

#include "gradus/tensor/base/device.h"

namespace gradus {

struct DeviceProperties {
  std::string name;
  int64_t memory_bytes = 0;  // total memory of the device
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
};

// Returns the number of CUDA devices: 0 if the program was built without CUDA or if there is no usable driver, in
// which case to(x, "cuda:0") throws a DeviceError with the reason. Devices with a compute capability below 8.0 are
// included, although kernels cannot run on them. The call initializes CUDA, which then cannot be used in a child
// of fork().
// Errors: StateError in a child of fork() whose parent used CUDA; DeviceFailure if the driver fails.
int cuda_device_count();

// Returns the properties of a CUDA device.
// Errors: DeviceError with the reason if the device cannot be used; others as cuda_device_count().
DeviceProperties device_properties(Device device);

}  // namespace gradus
