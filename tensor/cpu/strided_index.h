// The StridedIndex of tensors, for element-wise loops.
#pragma once

#include <cstdint>
#include <span>

#include "gradus/tensor/base/strided_index.h"
#include "gradus/tensor/tensor.h"

namespace gradus::cpu {

// Minimum number of elements per thread of an element-wise loop.
inline constexpr int64_t kElementwiseGrain = 32768;

// Returns the loops over `count` operands, whose shapes broadcast to operand 0's. Requires numel > 0.
inline StridedIndex strided_index_of(const Tensor* const* operands, int count) {
  const Tensor& out = *operands[0];
  return make_strided_index({out.shape().begin(), size_t(out.dim())}, count, [&](int k, int d) -> int64_t {
    const Tensor& x = *operands[k];
    const int own = d - (out.dim() - x.dim());
    return own < 0 || x.shape()[own] == 1 ? 0 : x.strides()[own];
  });
}

}  // namespace gradus::cpu
