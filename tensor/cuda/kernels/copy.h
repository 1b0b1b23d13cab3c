// Copies between layouts and dtypes, fills, and evenly spaced values.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gradus/tensor/cuda/kernels/strided_index.h"

namespace gradus::cuda {

// Writes views[1] into views[0], converted, in the order of an index space of these two. They do not overlap.
// Floats beyond the range of an integer dtype become integers that the CPU does not give.
void copy(const char* op, const StridedIndex& index, const View* views, cudaStream_t stream);

// Writes one element, of view.dtype, into all of an index space of one operand.
void fill(const char* op, const StridedIndex& index, const View& view, const void* element,
          cudaStream_t stream);

// Evenly spaced values, computed in f64 as on the CPU.
// out[i] = start + i step, for n elements side by side.
void arange(const char* op, const View& out, int64_t n, double start, double step, cudaStream_t stream);
// n values from start to end, both exact.
void linspace(const char* op, const View& out, int64_t n, double start, double end, cudaStream_t stream);

}  // namespace gradus::cuda
