// StridedIndex: the iteration space of an element-wise kernel over strided, broadcast operands, as nested loops in
// the memory order of the output. Similar to PyTorch's TensorIterator.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include "gradus/tensor/base/shape.h"

namespace gradus {

inline constexpr int kMaxOperands = 4;

// The loops are ordered by the strides of operand 0, the output, outermost first. Adjacent dims are merged where
// the strides of all operands allow it: operands with the same dense layout give one loop. Broadcast dims have
// stride 0. Strides and offsets count elements.
struct StridedIndex {
  int operands = 0;
  int dims = 1;  // at least one
  int64_t numel = 1;
  int64_t size[kMaxDims] = {1};
  int64_t stride[kMaxOperands][kMaxDims] = {};

  int64_t inner_size() const { return size[dims - 1]; }
  int64_t inner_stride(int operand) const { return stride[operand][dims - 1]; }
  // Returns whether the operand is contiguous in iteration order: its offset at position i is i.
  bool is_contiguous(int operand) const {
    int64_t expected = 1;
    for (int d = dims - 1; d >= 0; expected *= size[d--])
      if (stride[operand][d] != expected && numel != 1) return false;
    return true;
  }
  // Sets offsets[k] to the offset of operand k at position `linear` in [0, numel) of the iteration space.
  void locate(int64_t linear, int64_t* offsets) const {
    for (int k = 0; k < operands; ++k) offsets[k] = 0;
    for (int d = dims - 1; d >= 0; --d) {
      const int64_t i = d ? linear % size[d] : linear;
      linear /= size[d];
      for (int k = 0; k < operands; ++k) offsets[k] += i * stride[k][d];
    }
  }
};

// Returns the loops over an output of shape `sizes` (at most kMaxDims dims). stride_of(k, d) is the stride along
// dim d of operand k < operands <= kMaxOperands; operand 0 is the output.
template <class StrideOf>
StridedIndex make_strided_index(std::span<const int64_t> sizes, int operands, StrideOf&& stride_of) {
  StridedIndex index;
  index.operands = operands;
  int order[kMaxDims];
  int count = 0;  // dims with more than one position
  for (int d = 0; d < static_cast<int>(sizes.size()); ++d) {
    index.numel *= sizes[size_t(d)];
    if (sizes[size_t(d)] != 1) order[count++] = d;
  }
  // Insertion sort: stable.
  for (int i = 1; i < count; ++i)
    for (int j = i; j > 0 && stride_of(0, order[j]) > stride_of(0, order[j - 1]); --j)
      std::swap(order[j], order[j - 1]);
  index.dims = 0;
  for (int i = 0; i < count; ++i) {
    const int64_t size = sizes[size_t(order[i])];
    int64_t strides[kMaxOperands];
    bool merges = index.dims > 0;
    for (int k = 0; k < operands; ++k) {
      strides[k] = stride_of(k, order[i]);
      merges = merges && index.stride[k][index.dims - 1] == strides[k] * size;
    }
    const int at = merges ? index.dims - 1 : index.dims++;
    index.size[at] = (merges ? index.size[at] : 1) * size;
    for (int k = 0; k < operands; ++k) index.stride[k][at] = strides[k];
  }
  index.dims = std::max(index.dims, 1);  // a single element has one loop
  return index;
}

}  // namespace gradus
