// Times several ways of one computation on a device against each other.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "gradus/tensor/base/device.h"

namespace gradus::cuda {

// Returns which of `n` ways takes the device the least time; nothing where all fail. prepare(i) returns what
// queues the work on the device's current stream. It is called once, the work a few times. The first time
// does not count, and the least of the others does. A way that throws a DeviceFailure is left out.
// The host waits for the stream, once for all.
// Errors: CudaError where the device fails meanwhile.
std::optional<size_t> find_fastest(Device device, size_t n,
                                   const std::function<std::function<void()>(size_t)>& prepare);

}  // namespace gradus::cuda
