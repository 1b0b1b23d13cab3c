// Activation functions. All act element by element and keep shape, dtype and layout.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// Rectifies: y = max(x, 0). NaN stays. A temporary gives its buffer to the result when nobody else can see
// it. Grad: dy where y > 0, else 0.
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

// Takes the smooth rectifier: y = log(1 + e^(beta x)) / beta; x itself where beta x > 20.
// Errors: ValueError unless beta > 0.
// Grad: dy sigmoid(beta x).
Tensor softplus(const Tensor& x, double beta = 1);

// Weighs by the logistic function: y = x sigmoid(x). Also called swish.
// Grad: dy s (1 + x (1 - s)) with s = sigmoid(x).
Tensor silu(const Tensor& x);

enum class Gelu { kExact, kTanh };
// Weighs by the normal distribution: y = x P(X <= x). kTanh: the usual approximation,
// y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
// Grad: dy (P(X <= x) + x p(x)), p the normal density.
// Source: Hendrycks, Gimpel, "Gaussian error linear units", 2016.
Tensor gelu(const Tensor& x, Gelu form = Gelu::kExact);

// --- fused gradients: what the rules above are made of; they may write into dy's buffer ---

Tensor relu_backward(Tensor dy, const Tensor& y);
Tensor leaky_relu_backward(Tensor dy, const Tensor& x, double slope);
Tensor elu_backward(Tensor dy, const Tensor& x, double alpha);
Tensor sigmoid_backward(Tensor dy, const Tensor& y);
Tensor tanh_backward(Tensor dy, const Tensor& y);
Tensor silu_backward(Tensor dy, const Tensor& x);
Tensor gelu_backward(Tensor dy, const Tensor& x, Gelu form);

}  // namespace gradus
