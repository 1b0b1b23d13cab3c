// Softmax and log-softmax.
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

// The gradients above as ops: `y` is the forward's result.
// Errors: ShapeError unless dy and y have one shape.
Tensor softmax_backward(const Tensor& dy, const Tensor& y, int64_t dim);
Tensor log_softmax_backward(const Tensor& dy, const Tensor& y, int64_t dim);

}  // namespace gradus
