// Buffers that an op may take over for its result.
#pragma once

#include "gradus/autograd/graph/record.h"

namespace gradus::autograd {

// Returns a tensor on dy's buffer for an element-wise result of dy with x. The tensor has no place in
// the graph. Returns an undefined tensor when dy may still be read elsewhere, or when the result has
// another shape than dy.
inline Tensor reusable_for(const Tensor& dy, const Tensor& x) {
  return may_reuse(dy) && dy.shape() == x.shape() ? detach(dy) : Tensor();
}

}  // namespace gradus::autograd
