// Draws of indices by weights, as a slot of tensor/ops/random.h wants them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gradus/tensor/cuda/runtime/value_reports.h"

namespace gradus::cuda {

// All row by row.
struct Multinomial {
  int64_t* out;           // [rows, count]
  const double* weights;  // [rows, n]
  const double* uniform;  // [rows, count] with replacement, else [rows, n]
  int64_t rows, n, count;
};

// Positions of a row in reports: its weights, its total, its number of positive weights.
inline int64_t reported_per_row(int64_t n) { return n + 2; }

// Bytes that multinomial needs at an address that is a multiple of 16.
int64_t multinomial_workspace(const Multinomial& m, bool replacement);
// Draws. Where weights are errors, which are reported, indices of the row are any that it has.
void multinomial(const char* op, const Multinomial& m, bool replacement, void* workspace,
                 const ValueReports& reports, cudaStream_t stream);

}  // namespace gradus::cuda
