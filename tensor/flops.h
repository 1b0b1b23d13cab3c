// FLOPs of kernels.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace gradus {

class Tensor;

// Returns the multiply-adds, two FLOPs each, of the matrix product or convolution that a kernel is; 0 for
// other kernels. `tensors` are the kernel's, in the order of its arguments, without undefined ones.
int64_t kernel_flops(std::string_view op, std::span<const Tensor* const> tensors);

}  // namespace gradus
