// reusable_for: the buffer of a gradient that a backward op may overwrite with its result.
#pragma once

#include "gradus/autograd/graph/record.h"

namespace gradus::autograd {

// Returns a tensor on dy's buffer, without a slot in the graph, for the result of an element-wise op on dy and x.
// Returns an undefined tensor when dy has other owners, or when the shapes of dy and x differ.
inline Tensor reusable_for(const Tensor& dy, const Tensor& x) {
  return may_reuse(dy) && dy.shape() == x.shape() ? detach(dy) : Tensor();
}

}  // namespace gradus::autograd
