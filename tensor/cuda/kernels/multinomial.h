// Launches of multinomial sampling (torch.multinomial), for the slot of tensor/ops/random.h.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gradus/tensor/cuda/runtime/value_reports.h"

namespace gradus::cuda {

// Row-major arrays in device memory.
struct Multinomial {
  int64_t* out;           // [rows, count]: the drawn indices, in [0, n)
  const double* weights;  // [rows, n]
  const double* uniform;  // numbers in [0, 1): [rows, count] with replacement, else [rows, n]
  int64_t rows, n, count;
};
// Returns the number of positions of a row in error reports (value_errors.h): the n weights, at n the sum of
// the weights, at n + 1 the number of positive weights.
inline int64_t reported_per_row(int64_t n) { return n + 2; }
// Returns the bytes of workspace that multinomial() needs, aligned to 16.
int64_t multinomial_workspace(const Multinomial& m, bool replacement);
// Draws `count` indices per row with probabilities proportional to the weights, by the formulas of
// tensor/ops/formulas/multinomial.h, so the same ones as the CPU kernel: with replacement by a search in the
// running sums, else those of the smallest arrival times, in this order. Without replacement count <= n, and
// a row needs `count` positive weights. Reports invalid weights and sums as doubles, too small a number of
// positive weights as an int64_t; such a row gets arbitrary indices in [0, n).
void multinomial(const char* op, const Multinomial& m, bool replacement, void* workspace,
                 const ValueReports& reports, cudaStream_t stream);

}  // namespace gradus::cuda
