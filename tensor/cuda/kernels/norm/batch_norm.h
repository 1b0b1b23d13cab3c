// Launches of batch norm and its gradients, for the slots of tensor/ops/norm/batch_norm.h. x, y, residual and
// their gradients are row-major [rows, channels]: channels-last tensors, whose rows are batch and spatial
// positions. Statistics, weight and bias are [channels]. T, the dtype of x, is double, float, f16 or bf16; A
// = compute_t<T> is float for 16 bits, else T. Pointers are device memory; errors name `op`.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "gradus/tensor/cuda/kernels/compute_type.h"

namespace gradus::cuda {

// The arguments that most functions share.
template <class T> struct BatchNorm {
  int64_t rows, channels;  // at least 1, here and below
  const T* x;
  compute_t<T>*mean, *var;           // written by batch_norm(), read by the other functions; var is biased
  const compute_t<T>*weight, *bias;  // null: 1 and 0
  double eps;                        // added to var
};

// Running statistics: mean += momentum * (batch mean - mean), var += momentum * (batch var * var_factor -
// var), with var_factor = rows / (rows - 1). Elements are A if wide, else T. mean and var are null only
// together; if they are not, rows is at least 2. `batches`, one element, is incremented; may be null.
struct RunningStatistics {
  void *mean, *var;
  int64_t* batches;
  double var_factor, momentum;
  int32_t mean_is_wide, var_is_wide;
};

// Returns the bytes of the `workspace` of each function below, which is aligned to 16.
int64_t batch_norm_workspace(int64_t rows, int64_t channels);
// Writes mean and var of the batch, updates the running statistics, and writes
//   y = leaky((x - mean) * weight / sqrt(var + eps) + bias + residual)
// leaky multiplies negative values by negative_slope; 1: no activation. A null residual is 0; it may be y.
template <class T>
void batch_norm(const char* op, const BatchNorm<T>& s, T* y, const T* residual, double negative_slope,
                const RunningStatistics& running, void* workspace, cudaStream_t stream);
// y = (x - mean) * weight / sqrt(var + eps) + bias.
template <class T> void batch_norm_apply(const char* op, const BatchNorm<T>& s, T* y, cudaStream_t stream);
// Gradients of batch_norm() without a residual. dy is the gradient of y; negative_slope as there. dx includes
// the paths through mean and var; dx may be dy. s.bias is read only if negative_slope is not 1.
template <class T>
void batch_norm_backward(const char* op, const BatchNorm<T>& s, T* dx, compute_t<T>* dweight,
                         compute_t<T>* dbias, const T* dy, double negative_slope, void* workspace,
                         cudaStream_t stream);
// Gradients of y = relu(batch_norm(x) + residual). dresidual may be dy, dx may be y. s.bias is not read.
template <class T>
void batch_norm_add_relu_backward(const char* op, const BatchNorm<T>& s, T* dx, T* dresidual,
                                  compute_t<T>* dweight, compute_t<T>* dbias, const T* dy, const T* y,
                                  void* workspace, cudaStream_t stream);
// Parts of the gradient of batch_norm_apply(): dx = dy * weight / sqrt(var + eps), sum[c] = sum_r dy[r, c],
// centered_sum[c] = sum_r dy[r, c] * (x[r, c] - mean[c]).
template <class T>
void batch_norm_apply_backward(const char* op, const BatchNorm<T>& s, compute_t<T>* dx, compute_t<T>* sum,
                               compute_t<T>* centered_sum, const T* dy, void* workspace, cudaStream_t stream);

// mean[c] = mean over rows of x, m2[c] = sum_r (x[r, c] - mean[c])^2.
template <class T>
void batch_statistics(const char* op, double* mean, double* m2, const T* x, int64_t rows, int64_t channels,
                      void* workspace, cudaStream_t stream);
// dx = add + offset + (x - mean) * slope, per channel. A null `add` is 0; dx may be `add` if T is A.
template <class T>
void batch_statistics_backward(const char* op, T* dx, const compute_t<T>* add, const T* x,
                               const compute_t<T>* mean, const compute_t<T>* offset,
                               const compute_t<T>* slope, int64_t rows, int64_t channels,
                               cudaStream_t stream);
// Updates the running statistics, also `batches`, by mean and biased var of a batch. T is the type of
// elements that are not wide.
template <class T>
void batch_norm_update(const char* op, const RunningStatistics& running, const compute_t<T>* mean,
                       const compute_t<T>* var, int64_t channels, cudaStream_t stream);

}  // namespace gradus::cuda
