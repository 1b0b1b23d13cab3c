// Launches of layer norm and RMS norm over the rows of row-major x[rows, n], and of the gradients. T is float
// or double. Pointers are memory of the device of `stream`; `op` is named in a CudaError. weight[n] and
// bias[n] may be null (1 and 0). rows and n are at least 1. No result overlaps an input.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gradus::cuda {

// y = (x - mean) / sqrt(var + eps) * weight + bias. If not `centered` (RMS norm), mean = 0 and var =
// mean(x^2). Writes mean and 1 / sqrt(var + eps) of each row to stats[rows, 2], which is aligned to 16 bytes.
template <class T>
void layer_norm(const char* op, T* y, double* stats, const T* x, const T* weight, const T* bias, int64_t rows,
                int64_t n, double eps, bool centered, cudaStream_t stream);

// With z = (x - mean) / sqrt(var + eps) and g = dy * weight:
//   dx[r, i] = (g - mean_i(g) - z * mean_i(g * z)) / sqrt(var + eps), without mean_i(g) if not `centered`
//   dweight[i] = sum_r dy * z, dbias[i] = sum_r dy
// `workspace` has layer_norm_backward_workspace() bytes, aligned to 16.
template <class T>
void layer_norm_backward(const char* op, T* dx, T* dweight, T* dbias, const T* dy, const T* x,
                         const double* stats, const T* weight, int64_t rows, int64_t n, bool centered,
                         void* workspace, cudaStream_t stream);
int64_t layer_norm_backward_workspace(int64_t rows, int64_t n);

}  // namespace gradus::cuda
