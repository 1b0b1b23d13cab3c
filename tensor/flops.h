// FLOP counts of kernels, for the profiler (tensor/profile).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace gradus {

class Tensor;

// Returns the FLOPs of the kernel of slot `op`: two for each multiply-add of a matrix product (matmul,
// matmul_relu, linear_weight_grad) or convolution (conv...), 0 for other kernels. `tensors` are the kernel's
// tensors in the order of its arguments, without undefined ones.
int64_t kernel_flops(std::string_view op, std::span<const Tensor* const> tensors);

}  // namespace gradus
