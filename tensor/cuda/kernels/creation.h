// Evenly spaced values, computed in f64 as on the CPU.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gradus/tensor/cuda/kernels/strided_index.h"

namespace gradus::cuda {

// out[i] = start + i step, for n elements side by side.
void arange(const char* op, const View& out, int64_t n, double start, double step, cudaStream_t stream);
// n values from start to end, both exact.
void linspace(const char* op, const View& out, int64_t n, double start, double end, cudaStream_t stream);

}  // namespace gradus::cuda
