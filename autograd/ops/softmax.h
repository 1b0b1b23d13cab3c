// Differentiable softmax, log-softmax, softmin and Gumbel-softmax along one dim, and the backward ops of the first
// two. Results have x's shape and dtype. 16-bit floats are computed in f32, and under autocast returned in f32.
// A negative `dim` counts from the end.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// Returns y_i = exp(x_i) / sum_j exp(x_j) along `dim`. The maximum is subtracted first, so exp does not overflow.
// Errors: DTypeError unless x is floating point; IndexError if x has no such dim.
// Grad: dx = y (dy - sum(dy y)), with the sum along `dim`.
Tensor softmax(const Tensor& x, int64_t dim);

// Returns y_i = x_i - log sum_j exp(x_j) along `dim`, without overflow, as softmax.
// Errors: as softmax.
// Grad: dx = dy - exp(y) sum(dy), with the sum along `dim`.
Tensor log_softmax(const Tensor& x, int64_t dim);

// Returns y = softmax(-x) along `dim`.
// Errors: as softmax.
// Grad: dx = -y (dy - sum(dy y)), with the sum along `dim`.
Tensor softmin(const Tensor& x, int64_t dim);

struct GumbelSoftmaxOptions {
  double tau = 1;  // temperature: a smaller value gives samples closer to one-hot
  bool hard =
      false;  // returns the one-hot argmax of the samples, with the samples' gradient (straight-through)
  int64_t dim = -1;
};
// Samples from the relaxed categorical distributions with logits x along a dim: softmax((x + g) / tau) with Gumbel
// noise g = -log(-log u), where u is uniform on (0, 1), from the generator of the thread's Context.
// Errors: as softmax; ValueError unless tau is positive.
// Source: Jang et al., "Categorical reparameterization with Gumbel-softmax", ICLR 2017.
Tensor gumbel_softmax(const Tensor& x, const GumbelSoftmaxOptions& options = {});

// Backward ops: return dx from dy and the forward's result y, by the formulas above. Differentiable in dy and y.
// Errors: ShapeError unless dy and y have the same shape and dtype; DeviceError unless they are on the same
// device; the rest as softmax.
Tensor softmax_backward(const Tensor& dy, const Tensor& y, int64_t dim);
Tensor log_softmax_backward(const Tensor& dy, const Tensor& y, int64_t dim);

}  // namespace gradus
