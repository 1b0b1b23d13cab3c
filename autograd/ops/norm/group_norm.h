// Group norm, instance norm and local response norm, differentiable to any order. 16-bit floats are computed
// in f32. Image results are channels-last.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// Normalizes each sample over groups of C / groups neighboring channels and all positions:
//   y = (x - mean) / sqrt(var + eps) * weight + bias
// The variance is the biased one.
// Shapes: x [N,C], [N,C,L], [N,C,H,W] or [N,C,D,H,W]; weight and bias [C] (1 and 0 when undefined), of x's
// dtype or f32 -> x's shape.
// Errors: ShapeError for other shapes; ValueError unless groups >= 1 divides C, and for eps <
// 0; DTypeError; DeviceError.
// Source: Wu and He, "Group normalization", ECCV 2018.
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight = {}, const Tensor& bias = {},
                  double eps = 1e-5);

struct InstanceNormFuncOptions {
  bool use_input_stats = true;  // false: normalizes by the running statistics
  double momentum = 0.1;        // running = (1 - momentum) running + momentum batch
  double eps = 1e-5;            // added to the variance
};

// Normalizes each channel of each sample over its positions: group_norm with one channel per group. The
// running statistics, if defined, are updated in place with the averages over the batch of the samples' means
// and unbiased variances. Without use_input_stats, x is normalized by the running statistics.
// Shapes: x [N,C,L], [N,C,H,W] or [N,C,D,H,W], the others [C] or undefined -> x's shape.
// Errors: ShapeError for other shapes; ValueError for one position per channel, for eps < 0, and without
// use_input_stats when there are no running statistics, or only one of them; DTypeError; DeviceError.
// Source: Ulyanov et al., "Instance normalization: the missing ingredient for fast stylization", 2016.
Tensor instance_norm(const Tensor& x, const Tensor& running_mean = {}, const Tensor& running_var = {},
                     const Tensor& weight = {}, const Tensor& bias = {},
                     const InstanceNormFuncOptions& options = {});

struct LocalResponseNormFuncOptions {
  double alpha = 1e-4, beta = 0.75, k = 1;
};

// Normalizes over neighboring channels: y_c = x_c / (k + alpha / size * sum_j x_j^2)^beta, where j runs over
// those of the channels c - size / 2 to c + (size - 1) / 2 (integer division) that exist.
// Shapes: x [N,C,...] of 3 to 5 dims.
// Errors: ShapeError; ValueError for size < 1; DTypeError.
// Source: Krizhevsky et al., "ImageNet classification with deep convolutional neural networks", NeurIPS 2012.
Tensor local_response_norm(const Tensor& x, int64_t size, const LocalResponseNormFuncOptions& options = {});

struct ChannelWindowOptions {
  int64_t before = 0, after = 0;
};

// Sums over neighboring channels: y[n,c,...] = sum of x[n,j,...] over the existing channels j in
// [c - before, c + after].
// Shapes: x [N,C,...] of 2 to 5 dims.
// Errors: ShapeError; ValueError for a negative extent; DTypeError unless floating point.
// Grad: channel_window_sum of dy with before and after swapped.
Tensor channel_window_sum(const Tensor& x, const ChannelWindowOptions& window);

}  // namespace gradus
