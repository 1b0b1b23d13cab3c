// Launch of cumsum, for the slot of tensor/ops/reduce.h. Arrays are row-major, in device memory; `op` is named in a
// CudaError.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gradus/tensor/cuda/kernels/strided_index.h"

namespace gradus::cuda {

// out[o, i, j] = sum of x[o, k, j] for k <= i (`reverse`: k >= i) for arrays [outer, n, inner]. If x is floating point,
// out has its dtype and sums are in f64; otherwise out is i64, modulo 2^64. `workspace` has cumsum_workspace() bytes,
// aligned to 16.
void cumsum(const char* op, const View& out, const View& x, int64_t outer, int64_t n, int64_t inner,
            bool reverse, void* workspace, cudaStream_t stream);
int64_t cumsum_workspace(int64_t outer, int64_t n, int64_t inner);

}  // namespace gradus::cuda
