// is_tracked: whether an open recording follows a tensor.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::autograd {

// Returns whether an op on `x` would be recorded now.
bool is_tracked(const Tensor& x);

}  // namespace gradus::autograd
