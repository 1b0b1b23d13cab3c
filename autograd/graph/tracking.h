// Whether open recordings follow a tensor.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::autograd {

// Whether an op on `x` would be recorded now.
bool is_tracked(const Tensor& x);

}  // namespace gradus::autograd
