// Tensors on a slow device: reading them on the host without waiting gives NaN.
#pragma once

#include <chrono>
#include <limits>
#include <thread>

#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/context.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus::dist {

// Returns x on a device that writes it a while after this has returned (cpu:0: before).
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
