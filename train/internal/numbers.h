// Numbers on a GPU, which a training reads late and many at once.
#pragma once

#include <cstddef>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::training::internal {

// The most numbers that stay unread.
inline constexpr std::size_t kMaxUnread = 1000;

bool is_on_gpu(const Tensor& x);
// Returns a copy in f64 of the one element of x.
Tensor copy_number(const Tensor& x);
// Waits for the GPU once.
std::vector<double> read_numbers(const std::vector<Tensor>& numbers);

}  // namespace gradus::training::internal
