// Launches of cumsum, cumprod, logcumsumexp, cummax, cummin and first-order linear recurrences, for the slots
// of tensor/ops/reduce.h. Arrays are row-major [outer, n, inner], in device memory, and may be empty; a
// result may be an input of the same dtype. Floats are combined in f64, in an order that depends on sizes
// alone. `workspace` has scans_workspace() bytes, aligned to 16. `op` is named in a CudaError.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gradus/tensor/cuda/kernels/strided_index.h"

namespace gradus::cuda {

// A scan of [outer, n, inner] along n. `reverse`: from the last element of a row to the first.
struct ScanShape {
  int64_t outer, n, inner;
  bool reverse = false;
};

// out[o, i, j] = sum of x[o, k, j] for k <= i (`reverse`: k >= i). If x is floating point, out has its dtype;
// otherwise out is i64, modulo 2^64.
void cumsum(const char* op, const View& out, const View& x, const ScanShape& scan, void* workspace,
            cudaStream_t stream);
// out[o, i, j] = product of x[o, k, j] for k <= i (`reverse`: k >= i), of x's dtype: f32, f64, or i64 modulo
// 2^64. A product of finite numbers is 0 if a factor is 0, however large the others are.
void cumprod(const char* op, const View& out, const View& x, const ScanShape& scan, void* workspace,
             cudaStream_t stream);
// out[o, i, j] = log(sum of e^x[o, k, j] for k <= i), of x's dtype, f32 or f64.
void logcumsumexp(const char* op, const View& out, const View& x, const ScanShape& scan, void* workspace,
                  cudaStream_t stream);
// values[o, i, j] = maximum (`largest`) or minimum of x[o, k, j] for k <= i, and indices[o, i, j] = its k,
// the last one of equal elements. NaN counts as the extremum, the last one of several. values has x's dtype.
void running_extremes(const char* op, const View& values, int64_t* indices, const View& x,
                      const ScanShape& scan, bool largest, void* workspace, cudaStream_t stream);
// out[i] = b[i] + a[i] * out[i - 1] along n, where out[-1] = 0 and a[0] is not read; `reverse`: out[i] =
// b[i] + a[i] * out[i + 1], where out[n] = 0 and a[n - 1] is not read. f32 or f64. The scan multiplies
// neighboring a before it multiplies their product by out: accuracy is lost if such a product is large and
// terms cancel to a small out. If a product times out overflows, or an a is infinite, out may be NaN where
// the CPU result is not.
void linear_recurrence(const char* op, const View& out, const View& a, const View& b, const ScanShape& scan,
                       void* workspace, cudaStream_t stream);
int64_t scans_workspace(const ScanShape& scan);

}  // namespace gradus::cuda
