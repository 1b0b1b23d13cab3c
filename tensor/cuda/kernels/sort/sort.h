// Launches of sort, topk, kthvalue, median, mode and the row order of unique, for the slots of
// tensor/ops/sort.h. Arrays are row-major, in device memory, of any dtype; NaN sorts after all numbers, -0
// equals 0, and sorting is stable. `op` is named in a CudaError.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gradus/tensor/cuda/kernels/strided_index.h"
#include "gradus/tensor/ops/sort.h"  // Selection

namespace gradus::cuda {

// x [outer, n, inner], sorted along n; 1 <= k <= n elements are kept.
struct SortShape {
  int64_t outer, n, inner, k;
};

// values, indices [outer, k, inner] = the first k elements of each slice of x in sorted order.
void sort(const char* op, const View& values, int64_t* indices, const View& x, const SortShape& s,
          bool descending, void* workspace, cudaStream_t stream);
// The selection of one element of each slice of x [outer, n, inner] along n >= 1; k is for
// raw::Selection::kKth. A mode takes n < 2^32.
struct SelectShape {
  int64_t outer, n, inner;
  raw::Selection what;
  int64_t k;
};
// values, indices [outer, 1, inner] = the selected elements and their indices in their slices.
void select(const char* op, const View& values, int64_t* indices, const View& x, const SelectShape& s,
            void* workspace, cudaStream_t stream);
// order[n] = the row indices of x[n, m] in lexicographic order of the rows; n >= 1, m >= 1.
void sort_rows(const char* op, int64_t* order, const View& x, int64_t n, int64_t m, void* workspace,
               cudaStream_t stream);
// Return the size in bytes of `workspace`, which must be aligned to 16 bytes.
int64_t sort_workspace(const SortShape& s);
int64_t select_workspace(const SelectShape& s);
int64_t sort_rows_workspace(int64_t n);

}  // namespace gradus::cuda
