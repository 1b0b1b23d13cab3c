// Batch normalization, channel by channel and element by element. A is the type to compute in.
#pragma once

#include <algorithm>

#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::formulas {

// The sum of squared differences of n numbers from their mean, from the sums of their differences from any
// number and of the squares of these.
GRADUS_HD double squares_about_mean(double sum, double squares, double n) {
  return std::max(0.0, squares - sum * sum / n);
}

GRADUS_HD double batch_norm_scale(double weight, double var, double eps) {
  return weight / m::sqrt(var + eps);
}

// The normalized value. Forward and backward share this function, so that the gradient of a rectified batch
// norm finds the same sign of the result.
template <class A> GRADUS_HD A normalized(A v, A mean, A scale, A shift) {
  return m::fma(v - mean, scale, shift);
}

// Returns max(v, 0), but NaN for NaN.
template <class A> GRADUS_HD A positive_part(A v) { return v < 0 ? A(0) : v; }

// The gradient of what became `rectified`: dy, or 0 where that is 0.
template <class A> GRADUS_HD A rectified_gradient(A dy, A rectified) { return rectified <= 0 ? A(0) : dy; }

// The same with a slope for negative numbers, as of leaky_relu: 0 is relu, 1 changes nothing.
template <class A> GRADUS_HD A leaky(A v, A slope) { return v < 0 ? (slope == 0 ? A(0) : slope * v) : v; }
template <class A> GRADUS_HD A leaky_gradient(A dy, A v, A slope) {
  return v <= 0 ? (slope == 0 ? A(0) : slope * dy) : dy;
}

// What the gradient of x needs of a channel of n elements. sum and centered_sum are those of dy and of
// dy * (x - mean).
struct BatchNormSlopes {
  double dweight, offset, slope;
};
GRADUS_HD BatchNormSlopes batch_norm_slopes(double sum, double centered_sum, double n, double var,
                                            double eps) {
  const double inv_var = 1 / (var + eps);
  return {centered_sum * m::sqrt(inv_var), sum / n, centered_sum * inv_var / n};
}
template <class A> GRADUS_HD A batch_norm_dx(A dy, A v, A mean, A scale, A offset, A slope) {
  return scale * (dy - offset - (v - mean) * slope);
}

// A line through `offset` at the mean.
template <class A> GRADUS_HD A line_about_mean(A v, A mean, A offset, A slope) {
  return offset + (v - mean) * slope;
}

// A running statistic, moved toward that of a batch.
GRADUS_HD double moved(double running, double batch, double momentum) {
  return running + momentum * (batch - running);
}

}  // namespace gradus::formulas
