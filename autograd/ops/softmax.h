// Softmax, log-softmax, softmin and Gumbel-softmax.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// Returns exp(x_i) / sum_j exp(x_j) along `dim`, without overflow.
// Errors: DTypeError unless floating point; IndexError.
// Grad: y (dy - sum(dy y)).
Tensor softmax(const Tensor& x, int64_t dim);

// Returns x_i - log sum_j exp(x_j) along `dim`, without overflow.
// Errors: DTypeError unless floating point; IndexError.
// Grad: dy - exp(y) sum(dy).
Tensor log_softmax(const Tensor& x, int64_t dim);

// Returns softmax of -x.
// Errors: as softmax.
// Grad: -y (dy - sum(dy y)).
Tensor softmin(const Tensor& x, int64_t dim);

struct GumbelSoftmaxOptions {
  double tau = 1;
  bool hard = false;  // one-hot results, with the gradient of the soft samples (straight-through)
  int64_t dim = -1;
};
// Samples from the relaxed categorical distributions with logits x along a dim: softmax((x + g) / tau) with Gumbel
// noise g.
// Errors: DTypeError unless floating point; IndexError; ValueError unless tau is positive.
// Source: Jang et al., Categorical Reparameterization with Gumbel-Softmax.
Tensor gumbel_softmax(const Tensor& x, const GumbelSoftmaxOptions& options = {});

// Backward ops: return dx from dy and the forward's result y.
// Errors: ShapeError unless dy and y have one shape.
Tensor softmax_backward(const Tensor& dy, const Tensor& y, int64_t dim);
Tensor log_softmax_backward(const Tensor& dy, const Tensor& y, int64_t dim);

}  // namespace gradus
