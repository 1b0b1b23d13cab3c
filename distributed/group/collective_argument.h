// What collectives ask of the tensors they are given, on whatever device they lie.
#pragma once

#include <string_view>

#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

// Errors: ValueError when undefined; DeviceError off host memory.
void check_in_host_memory(std::string_view op, std::string_view what, const Tensor& x);
// The same of a device that a result is wanted on.
void check_in_host_memory(std::string_view op, Device device);

// Waits until x's device has done what was queued on its current stream by now. A new tensor needs none of
// it: a queued kernel keeps its tensors, so no other one's memory is used again too early.
void wait_for_device(const Tensor& x);

// Both wait until x's device has written it.
// Errors: as check_in_host_memory; StateError when an open recording follows x, which would lose sight of it.

// Checks a tensor that a call only reads; returns it, or a row-major copy.
Tensor check_input(std::string_view op, std::string_view what, const Tensor& x);
// Checks a tensor that a call writes.
// Errors: ShapeError unless row-major as well.
void check_output(std::string_view op, std::string_view what, const Tensor& x);

}  // namespace gradus::dist::internal
