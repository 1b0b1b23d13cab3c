// Max pooling of f32 and bf16 images, for processors with AVX-512.
#pragma once

#include "gradus/tensor/ops/images/pool.h"

namespace gradus::cpu {

// Whether the two below serve this: f32 or bf16, windows of up to 256 cells, and the processor.
bool has_avx512_pool(const Tensor& x, const PoolWindows& w);

// As raw::max_pool_kernel and raw::max_pool_scatter_kernel.
void max_pool_avx512(const Tensor& y, const Tensor& index, const Tensor& x, const PoolWindows& w);
void max_pool_scatter_avx512(const Tensor& dx, const Tensor& dy, const Tensor& index, const PoolWindows& w);

}  // namespace gradus::cpu
