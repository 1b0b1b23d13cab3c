// Activation functions, applied to each element unless stated otherwise, differentiable to any order. The
// result has x's shape, dtype and layout; integers give the default dtype, except that relu, relu6, threshold
// and hardtanh with integer bounds keep their dtype. y is the result, dy its gradient; "Grad" is the gradient of
// x.
// Errors of all: StateError for an undefined tensor; DTypeError for a dtype that the op does not take.
#pragma once

#include "gradus/tensor/base/number.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// Rectified linear unit: y = max(x, 0); NaN stays NaN. The result reuses the buffer of a temporary that is
// its only owner.
// Grad: dy where y > 0, else 0.
Tensor relu(const Tensor& x);
Tensor relu(Tensor&& x);

// Leaky rectified linear unit: y = x where x >= 0, else slope x.
// Grad: dy where x > 0, else slope dy.
Tensor leaky_relu(const Tensor& x, double slope = 0.01);

// Exponential linear unit: y = x where x > 0, else alpha (e^x - 1).
// Grad: dy where x > 0, else dy alpha e^x.
Tensor elu(const Tensor& x, double alpha = 1);

// Logistic function: y = 1 / (1 + e^-x).
// Grad: dy y (1 - y).
Tensor sigmoid(const Tensor& x);

// Logarithm of the logistic function: y = -log(1 + e^-x), without overflow.
// Grad: dy sigmoid(-x).
Tensor logsigmoid(const Tensor& x);

// Hyperbolic tangent: y = tanh(x).
// Grad: dy (1 - y^2).
Tensor tanh(const Tensor& x);

// y = log(1 + e^(beta x)) / beta; y = x where beta x > threshold.
// Errors: ValueError unless beta > 0.
// Grad: dy sigmoid(beta x); dy where beta x > threshold.
Tensor softplus(const Tensor& x, double beta = 1, double threshold = 20);

// Sigmoid linear unit, also called swish: y = x sigmoid(x).
// Grad: dy s (1 + x (1 - s)) with s = sigmoid(x).
Tensor silu(const Tensor& x);

enum class Gelu { kExact, kTanh };
// Gaussian error linear unit: y = x P(X <= x), X standard normal. kTanh uses the approximation
//   y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
// Grad: dy (P(X <= x) + x p(x)), p the normal density.
// Source: Hendrycks, Gimpel, "Gaussian error linear units", 2016.
Tensor gelu(const Tensor& x, Gelu form = Gelu::kExact);

// y = min(max(x, low), high); relu6 has low = 0 and high = 6.
// Errors: ValueError unless low <= high.
// Grad: dy where low < x < high, else 0.
Tensor relu6(const Tensor& x);
Tensor hardtanh(const Tensor& x, Number low = -1, Number high = 1);

// hardsigmoid: y = min(max(x + 3, 0), 6) / 6. hardswish: y = x hardsigmoid(x).
// Source: Howard et al., "Searching for MobileNetV3", ICCV 2019.
Tensor hardsigmoid(const Tensor& x);
Tensor hardswish(const Tensor& x);

// y = 0 where |x| <= lambda; elsewhere y = x (hardshrink) or y = x - lambda sign(x) (softshrink).
// Errors: ValueError unless lambda >= 0 (softshrink).
// Grad: dy where |x| > lambda, else 0.
Tensor hardshrink(const Tensor& x, double lambda = 0.5);
Tensor softshrink(const Tensor& x, double lambda = 0.5);

// Continuously differentiable exponential linear unit: y = max(x, 0) + min(0, alpha (e^(x / alpha) - 1)).
// Errors: ValueError for alpha = 0.
// Grad: dy where x > 0, else dy e^(x / alpha).
Tensor celu(const Tensor& x, double alpha = 1);
// Scaled exponential linear unit: y = 1.0507 (max(x, 0) + min(0, alpha (e^x - 1))) with alpha = 1.6733.
// Source: Klambauer et al., "Self-normalizing neural networks", NIPS 2017.
Tensor selu(const Tensor& x);
// y = x tanh(softplus(x)).
// Source: Misra, "Mish", BMVC 2020.
Tensor mish(const Tensor& x);
// softsign: y = x / (1 + |x|). tanhshrink: y = x - tanh(x).
Tensor softsign(const Tensor& x);
Tensor tanhshrink(const Tensor& x);
struct ThresholdFuncOptions {
  double threshold = 0, value = 0;
};
// y = x where x > threshold, else `value`.
// Errors: ValueError for numbers outside the range of an integer dtype of x.
// Grad: dy where x > threshold, else 0.
Tensor threshold(const Tensor& x, ThresholdFuncOptions options);

// Leaky rectified linear unit with learned slopes: y = x where x > 0, else weight[c] x.
// Shapes: x [N,C,...] (or [C]), weight [1] or [C].
// Errors: ShapeError for a weight of another size; DTypeError unless weight has x's dtype.
// Grad: to x, dy where x > 0, else weight dy; to weight, the sum of dy x where x <= 0.
Tensor prelu(const Tensor& x, const Tensor& weight);

// Gated linear unit: y = a sigmoid(b), where a is the first half of x along `dim` and b the second half.
// Shapes: [..., 2k, ...] -> [..., k, ...].
// Errors: ShapeError unless the size is even.
Tensor glu(const Tensor& x, int64_t dim = -1);

// --- fused backward ops of the activations above: return dx for the op's input x or result y. dx is written
// into dy's buffer if the caller moves in the only reference. Floating point only. ---

Tensor relu_backward(Tensor dy, const Tensor& y);
Tensor leaky_relu_backward(Tensor dy, const Tensor& x, double slope);
Tensor elu_backward(Tensor dy, const Tensor& x, double alpha);
Tensor sigmoid_backward(Tensor dy, const Tensor& y);
Tensor tanh_backward(Tensor dy, const Tensor& y);
Tensor silu_backward(Tensor dy, const Tensor& x);
Tensor gelu_backward(Tensor dy, const Tensor& x, Gelu form);

}  // namespace gradus
