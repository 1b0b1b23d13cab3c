// Scalar formulas of batch normalization and of its gradients for one element v or one channel, shared by the
// kernels of all devices. A is the type to compute in. mean and var are the channel's; var is biased.
#pragma once

#include <algorithm>

#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::formulas {

// Returns sum (x - mean)^2 over n numbers, given sum = sum(x - k) and squares = sum (x - k)^2 for any k.
GRADUS_HD double squares_about_mean(double sum, double squares, double n) {
  return std::max(0.0, squares - sum * sum / n);
}

// Returns the `scale` of normalized() and batch_norm_dx(). The `shift` of normalized() is the channel's bias.
GRADUS_HD double batch_norm_scale(double weight, double var, double eps) {
  return weight / m::sqrt(var + eps);
}

// Returns (v - mean) * scale + shift. Shared by forward and backward, so that the gradient of batch norm with relu
// computes the same sign of the result.
template <class A> GRADUS_HD A normalized(A v, A mean, A scale, A shift) {
  return m::fma(v - mean, scale, shift);
}

// Returns max(v, 0), but NaN for NaN.
template <class A> GRADUS_HD A relu(A v) { return v < 0 ? A(0) : v; }
// The gradient of relu, given its result: dy, or 0 if rectified <= 0.
template <class A> GRADUS_HD A relu_gradient(A dy, A rectified) { return rectified <= 0 ? A(0) : dy; }

// leaky_relu with slope `slope` for negative numbers, and its gradient. Slope 0 is relu, slope 1 the identity.
template <class A> GRADUS_HD A leaky_relu(A v, A slope) {
  return v < 0 ? (slope == 0 ? A(0) : slope * v) : v;
}
template <class A> GRADUS_HD A leaky_relu_gradient(A dy, A v, A slope) {
  return v <= 0 ? (slope == 0 ? A(0) : slope * dy) : dy;
}

// The coefficients of a channel of n elements in the gradient of x (batch_norm_dx), and dweight. sum = sum(dy),
// centered_sum = sum(dy * (x - mean)), where dy is the gradient of normalized(): after that of an activation.
struct BatchNormGradCoefficients {
  double dweight, offset, slope;
};
GRADUS_HD BatchNormGradCoefficients batch_norm_grad_coefficients(double sum, double centered_sum, double n,
                                                                 double var, double eps) {
  const double inv_var = 1 / (var + eps);
  return {centered_sum * m::sqrt(inv_var), sum / n, centered_sum * inv_var / n};
}
template <class A> GRADUS_HD A batch_norm_dx(A dy, A v, A mean, A scale, A offset, A slope) {
  return scale * (dy - offset - (v - mean) * slope);
}

// Returns offset + (v - mean) * slope: the gradient of x if mean and variance themselves have gradients
// (batch_statistics_backward).
template <class A> GRADUS_HD A affine_about_mean(A v, A mean, A offset, A slope) {
  return offset + (v - mean) * slope;
}

// Returns a running mean or variance after its update by that of a batch, whose weight is `momentum`. The
// variance of the batch is unbiased here: var * n / (n - 1).
GRADUS_HD double updated_statistic(double running, double batch, double momentum) {
  return running + momentum * (batch - running);
}

}  // namespace gradus::formulas
