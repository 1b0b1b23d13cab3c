// Marks tensors whose elements are all 1, such as the gradient of a loss with respect to itself. An op that
// computes its input's gradient in its forward (cross_entropy) can return this gradient unscaled if its dy is
// known to be 1.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::autograd {

// Marks x's storage as filled with ones.
void mark_ones(const Tensor& x);
// Returns whether x's storage is marked and has not been written to since.
bool is_known_ones(const Tensor& x);

}  // namespace gradus::autograd
