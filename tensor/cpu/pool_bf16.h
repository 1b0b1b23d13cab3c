// Max pooling of bf16 images as they are, for processors with AVX-512.
#pragma once

#include "gradus/tensor/ops/pool.h"

namespace gradus::cpu {

// Whether the two below serve this: bf16, windows of up to 256 cells, and the processor.
bool pools_bf16(const Tensor& x, const PoolWindows& w);

// As raw::max_pool_kernel and raw::max_pool_scatter_kernel.
void max_pool_bf16(const Tensor& y, const Tensor& index, const Tensor& x, const PoolWindows& w);
void max_pool_scatter_bf16(const Tensor& dx, const Tensor& dy, const Tensor& index, const PoolWindows& w);

}  // namespace gradus::cpu
