// Layer norm and RMS norm, differentiable to any order.
#pragma once

#include <optional>

#include "gradus/tensor/tensor.h"

namespace gradus {

// Normalizes over the last dims, whose sizes are `normalized_shape`:
//   y = (x - mean) / sqrt(var + eps) * weight + bias
// The variance is the biased one. 16-bit floats are computed in f32. The result is row-major.
// Shapes: x [...,S], weight and bias S (1 and 0 when undefined), of x's dtype, or f32 if x has 16 bits -> x's
// shape and dtype.
// Errors: ShapeError for an empty normalized_shape, one that x does not end with, or a weight or bias of
// another shape; DTypeError; DeviceError; ValueError for eps < 0.
// Source: Ba et al., "Layer normalization", 2016.
Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {},
                  const Tensor& bias = {}, double eps = 1e-5);

// Divides by the root mean square over the last dims: y = x / sqrt(mean(x^2) + eps) * weight. eps defaults to
// the machine epsilon of f64 for f64, else of f32.
// Shapes and errors: as layer_norm.
// Source: Zhang and Sennrich, "Root mean square layer normalization", NeurIPS 2019.
Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {},
                std::optional<double> eps = std::nullopt);

}  // namespace gradus
