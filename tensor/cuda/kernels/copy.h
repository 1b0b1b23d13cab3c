// Launches of copies between layouts and dtypes, fills, and evenly spaced values. Views are device memory;
// strided_index.h has View and the index space. `op` is named in a CudaError.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <span>

#include "gradus/tensor/cuda/kernels/strided_index.h"
#include "gradus/tensor/cuda/kernels/tensor_table.h"

namespace gradus::cuda {

// Copies views[1] to views[0] at each position of the index space of these two operands, with conversion of
// dtypes. The two do not overlap. Floats out of range of an integer dtype may differ from the CPU.
void copy(const char* op, const StridedIndex& index, const View* views, cudaStream_t stream);
// The arguments of a copy: views[1] to views[0].
struct StridedCopy {
  StridedIndex index;
  std::array<View, 2> views;
};
// Makes these copies, of at least one element each, to destinations of one dtype that do not overlap. One launch has
// up to 15 of those that neither convert nor transpose; copy() makes the others, and a single one.
void copy_all(const char* op, std::span<const StridedCopy> copies, cudaStream_t stream);
// Copies array 1 of each tensor to its array 0: bytes, or rounds f32 to bf16 or f16. One launch has many tensors.
void copy_each(const char* op, DType to, DType from, std::span<const ArraysOfTensor<2>> tensors,
               cudaStream_t stream);
// Writes *element, a host value of view.dtype, to all positions of an index space of one operand.
void fill(const char* op, const StridedIndex& index, const View& view, const void* element,
          cudaStream_t stream);
// out[i] = start + i * step, computed in f64 as on the CPU, for n contiguous elements of any dtype.
void arange(const char* op, const View& out, int64_t n, double start, double step, cudaStream_t stream);
// out[i] = start + i * (end - start) / (n - 1) for n contiguous elements; both ends are exact.
void linspace(const char* op, const View& out, int64_t n, double start, double end, cudaStream_t stream);

}  // namespace gradus::cuda
