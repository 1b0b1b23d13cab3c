// Launches of tril and triu, and of repeat_interleave's indices, for the slots of tensor/ops/arrange.h. Arrays are
// row-major, in device memory; `op` is named in a CudaError.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gradus/tensor/cuda/runtime/value_reports.h"

namespace gradus::cuda {

// out[.., r, c] = x[.., r, c] if c - r <= diagonal (`upper`: c - r >= diagonal), else 0, for `count` elements of
// `bytes` bytes (1, 2, 4 or 8) in matrices of rows x cols.
void triangle(const char* op, void* out, const void* x, int64_t bytes, int64_t count, int64_t rows,
              int64_t cols, int64_t diagonal, bool upper, cudaStream_t stream);

// out[size] = index i counts[i] times, for i = 0 .. n - 1. Reports a negative count i at position 2 i, a sum of
// counts[0 .. i] that exceeds 64 bits at 2 i + 1, and a sum of all that is not `size` at 2 n; `out` then has any
// indices below max(n, 1). `workspace` has repeat_workspace() bytes, aligned to 16.
void repeat(const char* op, int64_t* out, int64_t size, const int64_t* counts, int64_t n, void* workspace,
            const ValueReports& reports, cudaStream_t stream);
int64_t repeat_workspace(int64_t n);

}  // namespace gradus::cuda
