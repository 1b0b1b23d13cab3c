// Launches of searchsorted and histc, for the slots of tensor/ops/sort.h. Arrays are row-major, in device
// memory. `op` is named in a CudaError.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gradus/tensor/cuda/kernels/strided_index.h"
#include "gradus/tensor/cuda/runtime/value_reports.h"

namespace gradus::cuda {

// out[row, i] = the number of elements of sorted[row, :] that are < values[row, i], or <= (`right`), for
// sorted [rows, n] and values [rows, m] of one dtype; n for NaN.
void searchsorted(const char* op, int64_t* out, const View& sorted, const View& values, int64_t rows,
                  int64_t n, int64_t m, bool right, cudaStream_t stream);

// The range of a histogram: [low, high], or if `x_low` and `x_high` are not null, [*x_low, *x_high] in device
// memory, of x's dtype.
struct HistogramRange {
  double low, high;
  const void *x_low = nullptr, *x_high = nullptr;
};
// out[bins] = the number of elements of x[n] in each of `bins` equal parts of the range, as
// formulas::HistogramBins, for x and out of f32 or f64. counts[bins] are zeros before. A range that is not
// finite in x's dtype is reported at position 0, and gives NaN.
void histc(const char* op, const View& out, int64_t* counts, const View& x, int64_t n, int64_t bins,
           const HistogramRange& range, const ValueReports& reports, cudaStream_t stream);

}  // namespace gradus::cuda
