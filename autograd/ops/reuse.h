// Buffers that an op may take over for its result.
#pragma once

#include "gradus/autograd/graph/record.h"

namespace gradus::autograd {

// Returns a tensor that shares dy's buffer for an element-wise result of dy with x, but has no place in the
// graph; undefined when somebody else may still read dy, or the result has another shape.
inline Tensor reusable_for(const Tensor& dy, const Tensor& x) {
  return may_reuse(dy) && dy.shape() == x.shape() ? detach(dy) : Tensor();
}

}  // namespace gradus::autograd
