// Vectorized max pooling of f32 and bf16 channels-last images: the running maxima of a window, for a vector of
// channels, stay in a register.
#pragma once

#include "gradus/tensor/ops/images/pool.h"

namespace gradus::cpu {

// Returns whether max_pool_in_registers and max_pool_scatter_in_registers support this pooling: f32 or bf16, and
// windows of up to 256 cells.
bool prefers_max_pool_in_registers(const Tensor& x, const PoolWindows& w);

// Compute what raw::max_pool_kernel and raw::max_pool_scatter_kernel compute. `index` is u8, or undefined in the
// forward.
void max_pool_in_registers(const Tensor& y, const Tensor& index, const Tensor& x, const PoolWindows& w);
void max_pool_scatter_in_registers(const Tensor& dx, const Tensor& dy, const Tensor& index,
                                   const PoolWindows& w);
// Computes what raw::max_pool_relu_grad_kernel computes, for f32 and bf16 and windows of any size.
void max_pool_relu_grad_in_registers(const Tensor& x, const Tensor& dy, const PoolWindows& w);

}  // namespace gradus::cpu
