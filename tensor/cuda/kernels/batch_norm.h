// Batch normalization of dense tensors with channels innermost, seen as [rows, channels]: slots of
// tensor/ops/norm/batch_norm.h. T is double, float, f16 or bf16. Numbers by channel are of the type in which
// T is computed.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gradus/tensor/cuda/kernels/compute_type.h"

namespace gradus::cuda {

template <class T> struct BatchNorm {
  int64_t rows, channels;
  const T* x;
  compute_t<T>*mean, *var;           // of the batch
  const compute_t<T>*weight, *bias;  // may be null: 1 and 0
  double eps;
};

// Statistics that move toward the batch's mean and var * var_factor. Their elements are T or, where wide, of
// the type in which T is computed. They may be null, and so may `batches`, which rises by 1.
struct RunningStatistics {
  void *mean, *var;
  int64_t* batches;
  double var_factor, momentum;
  int32_t mean_is_wide, var_is_wide;
};

// Bytes that functions with a workspace need, aligned to 16.
int64_t batch_norm_workspace(int64_t rows, int64_t channels);

// Writes mean and var, moves the running statistics, and writes y: x normalized by mean and var, plus
// `residual` if given; what is negative is multiplied by the slope. The residual may be y.
template <class T>
void batch_norm(const char* op, const BatchNorm<T>& s, T* y, const T* residual, double negative_slope,
                const RunningStatistics& running, void* workspace, cudaStream_t stream);
// y is x normalized by mean and var.
template <class T> void batch_norm_apply(const char* op, const BatchNorm<T>& s, T* y, cudaStream_t stream);
// dx may be dy, the gradient of y with negative numbers multiplied by the slope.
template <class T>
void batch_norm_backward(const char* op, const BatchNorm<T>& s, T* dx, compute_t<T>* dweight,
                         compute_t<T>* dbias, const T* dy, double negative_slope, void* workspace,
                         cudaStream_t stream);
// dresidual may be dy, dx may be y.
template <class T>
void batch_norm_add_relu_backward(const char* op, const BatchNorm<T>& s, T* dx, T* dresidual,
                                  compute_t<T>* dweight, compute_t<T>* dbias, const T* dy, const T* y,
                                  void* workspace, cudaStream_t stream);
// dx is dy times the scale; the sums are those of dy and of dy * (x - mean).
template <class T>
void batch_norm_apply_backward(const char* op, const BatchNorm<T>& s, compute_t<T>* dx, compute_t<T>* sum,
                               compute_t<T>* centered_sum, const T* dy, void* workspace, cudaStream_t stream);

// m2 is the sum of squared differences from the mean.
template <class T>
void batch_statistics(const char* op, double* mean, double* m2, const T* x, int64_t rows, int64_t channels,
                      void* workspace, cudaStream_t stream);
// dx = add + offset + (x - mean) * slope. `add` may be null, and dx may be it.
template <class T>
void batch_statistics_backward(const char* op, T* dx, const compute_t<T>* add, const T* x,
                               const compute_t<T>* mean, const compute_t<T>* offset,
                               const compute_t<T>* slope, int64_t rows, int64_t channels,
                               cudaStream_t stream);

// Moves the running statistics toward mean and var.
template <class T>
void batch_norm_update(const char* op, const RunningStatistics& running, const compute_t<T>* mean,
                       const compute_t<T>* var, int64_t channels, cudaStream_t stream);

}  // namespace gradus::cuda
