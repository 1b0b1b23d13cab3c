// Checks of the tensors that collectives are given, for any device.
#pragma once

#include <string_view>

#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

// Checks that x is in host memory.
// Errors: ValueError if x is undefined; DeviceError if x is not in host memory.
void check_in_host_memory(std::string_view op, std::string_view what, const Tensor& x);
// Checks the same of a device that a result is wanted on.
void check_in_host_memory(std::string_view op, Device device);

// Waits until x's device has done all work that is queued now on its current stream. A new tensor needs no
// wait: a queued kernel keeps its tensors alive, so their memory is not reused too early.
void wait_for_device(const Tensor& x);

// check_input and check_output both wait until x's device has written it.
// Errors: as for check_in_host_memory; StateError if an open recording follows x, since it would
// not see the call.

// Checks a tensor that a call only reads. Returns it, or a row-major copy.
Tensor check_input(std::string_view op, std::string_view what, const Tensor& x);
// Checks a tensor that a call writes.
// Errors: also ShapeError unless x is row-major.
void check_output(std::string_view op, std::string_view what, const Tensor& x);

}  // namespace gradus::dist::internal
