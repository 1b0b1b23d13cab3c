// Launches of nonzero, masked_select and masked_scatter, for the slots of tensor/ops/index.h, which has the formulas.
// Arrays are row-major, in device memory, elements have `bytes` bytes (1, 2, 4 or 8); `op` is named in a CudaError. The
// host knows the size of the result. `workspace` has mask_workspace() bytes, aligned to 16.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "gradus/tensor/base/shape.h"
#include "gradus/tensor/cuda/runtime/value_reports.h"

namespace gradus::cuda {

// The sizes of a tensor.
struct MaskShape {
  int64_t dims;
  std::array<int64_t, kMaxDims> size;
};

int64_t mask_workspace(int64_t n);
// out[k, d] = coordinate d of the k-th true element of mask[n], of which there are as many as rows of out.
void nonzero(const char* op, int64_t* out, const bool* mask, int64_t n, const MaskShape& shape,
             void* workspace, cudaStream_t stream);
// out[size] = the elements of x where mask[n] is true, then zeros. If mask has more than `size` true
// elements, reports their number at position 0.
void masked_select(const char* op, void* out, int64_t size, const void* x, int64_t bytes, const bool* mask,
                   int64_t n, void* workspace, const ValueReports& reports, cudaStream_t stream);
// out[i] = the next element of src[count] where mask[i] is true, else x[i] (0 if x is null), for i < n. If
// mask has more than `count` true elements, reports their number at position 0; the others repeat the last element of
// src (0 if count is 0).
void masked_scatter(const char* op, void* out, const void* x, int64_t bytes, const bool* mask, int64_t n,
                    const void* src, int64_t count, void* workspace, const ValueReports& reports,
                    cudaStream_t stream);

}  // namespace gradus::cuda
