// Batch normalization, differentiable. Options: gradus/tensor/ops/norm/batch_norm.h.
#pragma once

#include "gradus/tensor/ops/norm/batch_norm.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// Normalizes every channel over the batch and its positions: y = (x - mean) / sqrt(var + eps) * weight +
// bias. In training, mean and (biased) variance are the batch's own. They are computed from this rank alone,
// even if the model's batch norms have been converted (gradus/distributed/data_parallel/sync_batch_norm.h).
// The running statistics, when given, then move in place toward the batch's mean and unbiased variance:
//   running = (1 - momentum) running + momentum batch
// Outside of training, mean and variance are the running statistics. In the result images lie channels-last.
// Shapes: x [N,C], [N,C,L] or [N,C,H,W]; the others [C]. weight and bias may each be undefined: 1 and 0.
// Errors: ShapeError, DTypeError, DeviceError for arguments that do not fit x; ValueError when training on
// one element per channel, when there are no running statistics to use, or for eps < 0.
// Source: Ioffe and Szegedy, "Batch Normalization", ICML 2015.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                  const Tensor& running_var, const BatchNormFuncOptions& options = {});

// Return relu(batch_norm(x, ...)), leaky_relu(batch_norm(x, ...), slope), and relu(batch_norm(x, ...) +
// residual), as in the blocks of residual networks. In training the result is written in one pass, and its
// gradient is read in one pass. 16-bit floats are rounded once.
// Shapes: residual broadcasts with x as in x + residual; a temporary residual with x's shape passes
// its buffer to y.
// Errors: as batch_norm, and as +.
Tensor batch_norm_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                       const Tensor& running_var, const BatchNormFuncOptions& options = {});
Tensor batch_norm_leaky_relu(const Tensor& x, double slope, const Tensor& weight, const Tensor& bias,
                             const Tensor& running_mean, const Tensor& running_var,
                             const BatchNormFuncOptions& options = {});
Tensor batch_norm_add_relu(const Tensor& x, Tensor residual, const Tensor& weight, const Tensor& bias,
                           const Tensor& running_mean, const Tensor& running_var,
                           const BatchNormFuncOptions& options = {});

// The statistics that several batches exchange when they are normalized as one.
// Shapes: x as batch_norm's -> x itself, through which its gradient passes once; mean f64[C] over batch and
// positions; m2 f64[C], the sum of squared differences from the mean. An empty x gives zeros.
// Errors: as batch_norm.
struct BatchStatistics {
  Tensor x, mean, m2;
};
BatchStatistics batch_statistics(const Tensor& x);

// Returns (x - mean) / sqrt(var + eps) * weight + bias, by channel, differentiable in all of them.
// Shapes: as batch_norm.
// Errors: as batch_norm.
Tensor batch_norm_by(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                     const Tensor& bias, double eps);

}  // namespace gradus
