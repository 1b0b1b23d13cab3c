// Max pooling of f32 and bf16 images, for processors with AVX-512.
#pragma once

#include "gradus/tensor/ops/images/pool.h"

namespace gradus::cpu {

// Returns whether the two kernels below serve this pooling: f32 or bf16, windows of up to 256 cells, and a
// processor with AVX-512.
bool has_avx512_pool(const Tensor& x, const PoolWindows& w);

// Compute what raw::max_pool_kernel and raw::max_pool_scatter_kernel compute.
void max_pool_avx512(const Tensor& y, const Tensor& index, const Tensor& x, const PoolWindows& w);
void max_pool_scatter_avx512(const Tensor& dx, const Tensor& dy, const Tensor& index, const PoolWindows& w);

}  // namespace gradus::cpu
