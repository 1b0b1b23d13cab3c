// Launches of indexing by index tensors, for the slots of tensor/ops/index.h, which has the formulas. Arrays are
// row-major, in device memory, and indices i64. An index outside of [0, n) is reported: a read through it gives
// NaN, or 0 for integers and bool, and a write through it is left out. `op` is named in a CudaError.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gradus/tensor/cuda/kernels/strided_index.h"
#include "gradus/tensor/cuda/runtime/value_reports.h"
#include "gradus/tensor/ops/index.h"  // WriteMode

namespace gradus::cuda {

// An array [outer, n, inner] that is indexed by k indices along n.
struct IndexedShape {
  int64_t outer, n, inner, k;

  constexpr int64_t selected() const { return outer * k * inner; }  // elements of [outer, k, inner]
};

// out[o, i, j] = x[o, index[i], j] for out [outer, k, inner], index [k], x of out's dtype.
void index_select(const char* op, const View& out, const void* x, const int64_t* index, const IndexedShape& s,
                  const ValueReports& reports, cudaStream_t stream);
// out[o, i, j] = x[o, index[o, i, j], j] for out and index [outer, k, inner], x of out's dtype.
void gather(const char* op, const View& out, const void* x, const int64_t* index, const IndexedShape& s,
            const ValueReports& reports, cudaStream_t stream);

// Returns the bytes of workspace, aligned to 16, of index_put (count = k) or scatter (count = outer * k * inner).
int64_t write_workspace(int64_t count);
// out[o, index[i], j] = or op= src[o, i, j] for out [outer, n, inner], index [k], src [outer, k, inner] of out's
// dtype, except where index[i] == skip. Writes to one element are applied in the order of i, as on the CPU. kAssign
// takes all dtypes, the other modes f64, f32 and integers, kAdd also bool.
void index_put(const char* op, const View& out, const int64_t* index, const void* src, const IndexedShape& s,
               int64_t skip, raw::WriteMode mode, void* workspace, const ValueReports& reports,
               cudaStream_t stream);
// out[o, index[o, i, j], j] = or op= src[o, i, j], as index_put, for index and src [outer, k, inner].
void scatter(const char* op, const View& out, const int64_t* index, const void* src, const IndexedShape& s,
             raw::WriteMode mode, void* workspace, const ValueReports& reports, cudaStream_t stream);

// out[i] += stride * index[i] for `count` indices from -n to n - 1; negative ones count from the end. An invalid
// index is reported and makes out[i] negative, whatever is added for other dims.
void flat_index(const char* op, int64_t* out, const int64_t* index, int64_t count, int64_t n, int64_t stride,
                const ValueReports& reports, cudaStream_t stream);
// out[i, c] = c == index[i] for out [count, classes]. An invalid index gives a row of zeros.
void one_hot(const char* op, const View& out, const int64_t* index, int64_t count, int64_t classes,
             const ValueReports& reports, cudaStream_t stream);
// Only reports the invalid ones of `count` indices.
void check_indices(const char* op, const int64_t* index, int64_t count, int64_t n,
                   const ValueReports& reports, cudaStream_t stream);

}  // namespace gradus::cuda
