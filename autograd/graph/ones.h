// Gradients that are known to be 1. A backward begins with one. So an op may compute its input's gradient
// together with its result, and use it when its own gradient is known to be 1.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::autograd {

// Marks x's storage: all its elements are 1.
void mark_ones(const Tensor& x);
// Whether x is on such a storage, and nobody has written into it since.
bool is_known_ones(const Tensor& x);

}  // namespace gradus::autograd
