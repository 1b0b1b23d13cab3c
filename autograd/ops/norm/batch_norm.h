// Batch normalization, differentiable. Options (gradus/tensor/ops/norm/batch_norm.h): training (default
// false), momentum 0.1, eps 1e-5, and num_batches_tracked, an i64[] that training increments, or undefined.
#pragma once

#include "gradus/tensor/ops/norm/batch_norm.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// Normalizes each channel over the batch and all positions: y = (x - mean) / sqrt(var + eps) * weight + bias.
// In training, mean and biased variance are those of the batch, computed from this rank's batch alone;
// gradus/distributed/data_parallel/sync_batch_norm.h has batch norm over ranks. The running statistics, if
// defined, are updated in place with the batch's mean and unbiased variance:
//   running = (1 - momentum) running + momentum batch
// Outside of training, mean and variance are the running statistics. Image results are channels-last.
// An empty batch leaves the running statistics unchanged.
// Shapes: x [N,C], [N,C,L], [N,C,H,W] or [N,C,D,H,W]; the others [C], of x's dtype, or f32 if x has 16 bits.
// weight and bias may each be undefined: 1 and 0.
// Errors: ShapeError, DTypeError, DeviceError for arguments that do not fit x; ValueError when training on
// one element per channel, with no running statistics to use or only one of them, or for eps < 0.
// Source: Ioffe and Szegedy, "Batch Normalization", ICML 2015.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                  const Tensor& running_var, const BatchNormFuncOptions& options = {});

// Return relu(batch_norm(x, ...)), leaky_relu(batch_norm(x, ...), slope), and relu(batch_norm(x, ...) +
// residual), as in the blocks of residual networks. In training, normalization, addition and activation are
// fused into one pass over memory, in the forward and in the backward, and 16-bit results are rounded once.
// Shapes: residual broadcasts as in x + residual; y reuses the buffer of a temporary residual of x's shape.
// Errors: as batch_norm, and as +.
Tensor batch_norm_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                       const Tensor& running_var, const BatchNormFuncOptions& options = {});
Tensor batch_norm_leaky_relu(const Tensor& x, double slope, const Tensor& weight, const Tensor& bias,
                             const Tensor& running_mean, const Tensor& running_var,
                             const BatchNormFuncOptions& options = {});
Tensor batch_norm_add_relu(const Tensor& x, Tensor residual, const Tensor& weight, const Tensor& bias,
                           const Tensor& running_mean, const Tensor& running_var,
                           const BatchNormFuncOptions& options = {});

// Statistics of one batch for batch norm over several batches, which exchange and combine them.
// Shapes: x as batch_norm's -> x: the input, to be used in further computations so that one node sums all
// gradients of the input; mean f64[C] over batch and positions; m2 f64[C], the sum of squared differences
// from the mean. An empty input gives zeros.
// Errors: as batch_norm.
struct BatchStatistics {
  Tensor x, mean, m2;
};
BatchStatistics batch_statistics(const Tensor& x);

// Returns (x - mean) / sqrt(var + eps) * weight + bias per channel, differentiable in all five tensors.
// Shapes and errors: as batch_norm.
Tensor batch_norm_by(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                     const Tensor& bias, double eps);

}  // namespace gradus
