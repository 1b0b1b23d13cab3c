// Launches of group norm with its first and second gradients, and of sums over windows of channels, for the slots of
// tensor/ops/norm/group_norm.h, which has the formulas. x, y and their gradients are dense [samples, rows, channels]:
// channels-last images. T is float or double. Pointers are device memory; `op` is named in a CudaError. No result
// overlaps an input.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gradus::cuda {

// The arguments that the functions of group norm share. Sizes are at least 1; groups divides channels.
template <class T> struct GroupNorm {
  int64_t samples, rows, channels, groups;
  const T* x;
  const T* weight;     // [channels]; null: 1
  double *mean, *var;  // [samples, groups]; written by group_norm(), read by the gradients; var is biased
  double eps;          // added to var
};

// Return the size in bytes of `workspace`, which must be aligned to 16 bytes.
template <class T> int64_t group_norm_workspace(int64_t samples, int64_t rows, int64_t channels);
template <class T> int64_t group_norm_backward_workspace(int64_t samples, int64_t rows, int64_t channels);
template <class T>
int64_t group_norm_double_backward_workspace(int64_t samples, int64_t rows, int64_t channels);

// y = (x - mean) / sqrt(var + eps) * weight + bias. A null bias is 0.
template <class T>
void group_norm(const char* op, const GroupNorm<T>& s, T* y, const T* bias, void* workspace,
                cudaStream_t stream);
template <class T>
void group_norm_backward(const char* op, const GroupNorm<T>& s, T* dx, T* dweight, T* dbias, const T* dy,
                         void* workspace, cudaStream_t stream);
// ddweight and ddbias may be null (0).
template <class T>
void group_norm_double_backward(const char* op, const GroupNorm<T>& s, T* ddy, T* dx, T* dweight,
                                const T* ddx, const T* ddweight, const T* ddbias, const T* dy,
                                void* workspace, cudaStream_t stream);

// y[r, c] = sum of x[r, k] for k from c - before to c + after, within [0, channels), for `rows` rows.
template <class T>
void channel_window_sum(const char* op, T* y, const T* x, int64_t rows, int64_t channels, int64_t before,
                        int64_t after, cudaStream_t stream);

}  // namespace gradus::cuda
