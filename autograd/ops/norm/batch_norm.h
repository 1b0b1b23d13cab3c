// Batch normalization, differentiable. Options: gradus/tensor/ops/norm/batch_norm.h.
#pragma once

#include "gradus/tensor/ops/norm/batch_norm.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// Normalizes every channel over the batch and its positions: y = (x - mean) / sqrt(var + eps) * weight +
// bias. In training, mean and (biased) variance are the batch's own, this rank's alone also where the
// model's batch norms have been converted (gradus/distributed/data_parallel/sync_batch_norm.h), and the
// running statistics, when given, move toward the batch's mean and unbiased variance in place: running =
// (1 - momentum) running + momentum batch. Otherwise they are the running statistics. Images lie
// channels-last in the result.
// Shapes: x [N,C], [N,C,L] or [N,C,H,W]; the others [C], weight and bias (1 and 0 when undefined)
// for themselves. Errors:
// ShapeError, DTypeError, DeviceError for what does not fit x; ValueError when training on one
// element per channel,
//   when there are no running statistics to use, or for eps < 0.
// Source: Ioffe and Szegedy, "Batch Normalization", ICML 2015.
Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                  const Tensor& running_var, const BatchNormFuncOptions& options = {});

// y = relu(batch_norm(x, ...)) and y = relu(batch_norm(x, ...) + residual), as the blocks of residual
// networks have them; in training y is written in one pass, and its gradient read in one. 16-bit floats
// are rounded once.
// Shapes: residual: what x + residual takes; a temporary like x gives its buffer to y.
// Errors: as batch_norm, and as +.
Tensor batch_norm_relu(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                       const Tensor& running_var, const BatchNormFuncOptions& options = {});
Tensor batch_norm_add_relu(const Tensor& x, Tensor residual, const Tensor& weight, const Tensor& bias,
                           const Tensor& running_mean, const Tensor& running_var,
                           const BatchNormFuncOptions& options = {});

// What several batches that are normalized as one must know of each other.
// Shapes: x as batch_norm's -> x itself, through which its gradient passes once; mean f64[C] over batch and
// positions; m2 f64[C], the sum of squared differences from it. An empty x has zeros.
// Errors: as batch_norm.
struct BatchStatistics {
  Tensor x, mean, m2;
};
BatchStatistics batch_statistics(const Tensor& x);

// y = (x - mean) / sqrt(var + eps) * weight + bias, by channel, differentiable in all of them. Shapes,
// Errors: as batch_norm.
Tensor batch_norm_by(const Tensor& x, const Tensor& mean, const Tensor& var, const Tensor& weight,
                     const Tensor& bias, double eps);

}  // namespace gradus
