// Builds the StridedIndex of an element-wise CPU loop from its tensors: nested loop sizes with one stride per
// tensor, as PyTorch's TensorIterator. tensor/base/strided_index.h merges and orders the loops.
#pragma once

#include <cstdint>
#include <span>

#include "gradus/tensor/base/strided_index.h"
#include "gradus/tensor/tensor.h"

namespace gradus::cpu {

// Minimum number of elements per thread of an element-wise loop.
inline constexpr int64_t kElementwiseGrain = 32768;

// Returns the loops over the elements of operands[0], the output. operands[1], ..., operands[count - 1] broadcast
// to its shape, aligned at the last dim; a broadcast dim has stride 0. Strides count elements. The result does not
// refer to the tensors.
// Requires: 1 <= count <= kMaxOperands; operands[0] has elements.
inline StridedIndex strided_index_of(const Tensor* const* operands, int count) {
  const Tensor& out = *operands[0];
  return make_strided_index({out.shape().begin(), size_t(out.dim())}, count, [&](int k, int d) -> int64_t {
    const Tensor& x = *operands[k];
    const int own = d - (out.dim() - x.dim());  // the dim of x that is dim d of the output; negative: none
    return own < 0 || x.shape()[own] == 1 ? 0 : x.strides()[own];
  });
}

}  // namespace gradus::cpu
