// What collectives ask of the tensors they are given.
#pragma once

#include <string_view>

#include "gradus/tensor/tensor.h"

namespace gradus::dist::internal {

// Waits until x's device has done what was queued for it.
void wait_for_device(const Tensor& x);

// Both wait until x's device has written it. Errors: ValueError when undefined; DeviceError off host memory;
// StateError when an open recording follows x, which would lose sight of it.

// Checks a tensor that a call only reads; returns it, or a row-major copy.
Tensor check_input(std::string_view op, std::string_view what, const Tensor& x);
// Checks a tensor that a call writes. Errors: ShapeError unless row-major as well.
void check_output(std::string_view op, std::string_view what, const Tensor& x);

}  // namespace gradus::dist::internal
