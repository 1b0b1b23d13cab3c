// Dropout.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus {

// Sets elements to 0 with probability p and divides the others by 1 - p; returns x itself when not training.
// Which elements is a draw of the Context's generator, and another one on each rank. A temporary gives its
// buffer to the result when nobody else can see it. Errors: ValueError unless 0 <= p <= 1; DTypeError unless
// x is floating. Grad: dy / (1 - p) where x was kept, else 0. Source: Srivastava et al., "Dropout: a simple
// way to prevent neural networks from overfitting", 2014.
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);
Tensor dropout(Tensor&& x, double p = 0.5, bool training = true);

// Returns scale x where the mask (bool) holds, else 0: what dropout and its gradient are. May write into x's
// buffer. Grad: the same of dy.
Tensor masked_scale(Tensor x, const Tensor& mask, double scale);

}  // namespace gradus
