// Devices with queues, for tests, and tensors that a device writes late: code that reads them without
// synchronizing sees NaN (integers: 77).
#pragma once

#include <chrono>
#include <limits>
#include <thread>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/devices.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus::dist {

// Returns the GPU of this index in a program with GPUs, such as emulated ones, else cpu:1 or cpu:2 and so on.
inline Device queued_device(int index) {
  return cuda_device_count() > 0 ? Device{DeviceType::kCUDA, int16_t(index)}
                                 : Device{DeviceType::kCPU, int16_t(index + 1)};
}

// Returns a copy of x on `device`, written by its stream after a delay of 0.5 ms. On cpu:0, returns x.
inline Tensor late(const Tensor& x, Device device) {
  if (device == kCPU) return x;
  const Tensor y = empty(x.shape(), {.dtype = x.dtype(), .device = device});
  raw::fill_(y, is_floating(x.dtype()) ? std::numeric_limits<double>::quiet_NaN() : 77);
  const Stream stream = current_stream(device);
  stream.synchronize();
  stream.enqueue([] { std::this_thread::sleep_for(std::chrono::microseconds(500)); });
  raw::copy_(y, x);
  return y;
}

}  // namespace gradus::dist
