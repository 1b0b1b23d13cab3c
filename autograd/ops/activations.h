// Activation functions. All act element by element and keep shape, dtype and layout.
#pragma once

#include "gradus/tensor/base/number.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// Rectifies: y = max(x, 0). NaN stays. A temporary passes its buffer to the result when it is the only owner.
// Grad: dy where y > 0, else 0.
Tensor relu(const Tensor& x);
Tensor relu(Tensor&& x);

// Rectifies leakily: y = x where x >= 0, else slope x.
// Grad: dy where x > 0, else slope dy.
Tensor leaky_relu(const Tensor& x, double slope = 0.01);

// Takes the exponential linear unit: y = x where x > 0, else alpha (e^x - 1).
// Grad: dy where x > 0, else dy alpha e^x.
Tensor elu(const Tensor& x, double alpha = 1);

// Takes the logistic function: y = 1 / (1 + e^-x).
// Grad: dy y (1 - y).
Tensor sigmoid(const Tensor& x);

// Takes the logarithm of the logistic function: y = -log(1 + e^-x), without overflow.
// Grad: dy sigmoid(-x).
Tensor logsigmoid(const Tensor& x);

// Takes the hyperbolic tangent.
// Grad: dy (1 - y^2).
Tensor tanh(const Tensor& x);

// Takes the smooth rectifier: y = log(1 + e^(beta x)) / beta; x itself where beta x > threshold.
// Errors: ValueError unless beta > 0.
// Grad: dy sigmoid(beta x); dy where beta x > threshold.
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20);

// Multiplies by the logistic function: y = x sigmoid(x). Also called swish.
// Grad: dy s (1 + x (1 - s)) with s = sigmoid(x).
Tensor silu(const Tensor& x);

enum class Gelu { kExact, kTanh };
// Multiplies by the normal distribution function: y = x P(X <= x). kTanh uses the usual approximation
//   y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
// Grad: dy (P(X <= x) + x p(x)), p the normal density.
// Source: Hendrycks, Gimpel, "Gaussian error linear units", 2016.
Tensor gelu(const Tensor& x, Gelu form = Gelu::kExact);

// Limit x to [0, 6], and to [low, high]: y = min(max(x, low), high).
// Errors: ValueError unless low <= high.
// Grad: dy where low < x < high, else 0.
Tensor relu6(const Tensor& x);
Tensor hardtanh(const Tensor& x, Number low = -1, Number high = 1);

// Take piecewise linear forms of sigmoid and silu: min(max(x + 3, 0), 6) / 6, and x times that.
// Source: Howard et al., "Searching for MobileNetV3", ICCV 2019.
Tensor hardsigmoid(const Tensor& x);
Tensor hardswish(const Tensor& x);

// Set elements with |x| <= lambda to 0. softshrink moves the others toward 0 by lambda.
// Errors: ValueError unless lambda >= 0 (softshrink).
// Grad: dy where |x| > lambda, else 0.
Tensor hardshrink(const Tensor& x, double lambda = 0.5);
Tensor softshrink(const Tensor& x, double lambda = 0.5);

// Takes max(x, 0) + min(0, alpha (e^(x / alpha) - 1)).
// Errors: ValueError for alpha = 0.
// Grad: dy where x > 0, else dy e^(x / alpha).
Tensor celu(const Tensor& x, double alpha = 1);
// Takes scale (max(x, 0) + min(0, alpha (e^x - 1))), alpha = 1.6733, scale = 1.0507.
// Source: Klambauer et al., "Self-normalizing neural networks", NIPS 2017.
Tensor selu(const Tensor& x);
// Takes x tanh(softplus(x)).
// Source: Misra, "Mish", BMVC 2020.
Tensor mish(const Tensor& x);
// Take x / (1 + |x|), and x - tanh(x).
Tensor softsign(const Tensor& x);
Tensor tanhshrink(const Tensor& x);
// Sets x <= threshold to `value`.
// Grad: dy where x > threshold, else 0.
struct ThresholdFuncOptions {
  double threshold = 0, value = 0;
};
Tensor threshold(const Tensor& x, ThresholdFuncOptions options);

// Rectifies leakily with learned slopes: y = x where x > 0, else weight x.
// Shapes: x [N,C,...] (or [C]), weight [1] or [C].
// Errors: ShapeError for a weight of another size; DTypeError.
// Grad: to x, dy where x > 0, else weight dy; to weight, the sum of dy x where x <= 0.
Tensor prelu(const Tensor& x, const Tensor& weight);

// Multiplies the first half of `dim`, a, by the sigmoid of the second half, b: y = a sigmoid(b).
// Shapes: [..., 2k, ...] -> [..., k, ...].
// Errors: ShapeError unless the size is even.
Tensor glu(const Tensor& x, int64_t dim = -1);

// --- fused gradients: the rules above call these; they may write into dy's buffer ---

Tensor relu_backward(Tensor dy, const Tensor& y);
Tensor leaky_relu_backward(Tensor dy, const Tensor& x, double slope);
Tensor elu_backward(Tensor dy, const Tensor& x, double alpha);
Tensor sigmoid_backward(Tensor dy, const Tensor& y);
Tensor tanh_backward(Tensor dy, const Tensor& y);
Tensor silu_backward(Tensor dy, const Tensor& x);
Tensor gelu_backward(Tensor dy, const Tensor& x, Gelu form);

}  // namespace gradus
