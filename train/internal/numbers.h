// Numbers that a device computes, and for which a training waits late.
#pragma once

#include <cstddef>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::training::internal {

// So many are kept before somebody waits for them.
inline constexpr std::size_t kMostUnread = 1000;

// Returns whether to read x is to wait for a device.
bool is_far(const Tensor& x);
// Returns x's number in f64, in memory of its own: x may change afterward.
Tensor kept_number(const Tensor& x);
// Returns the numbers. Waits once.
std::vector<double> read_numbers(const std::vector<Tensor>& numbers);

}  // namespace gradus::training::internal
