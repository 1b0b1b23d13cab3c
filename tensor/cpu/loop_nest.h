// LoopNest: the iteration space of an element-wise kernel over strided, broadcast operands, as nested loops in the
// memory order of the output. Similar to PyTorch's TensorIterator.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gradus/tensor/tensor.h"

namespace gradus::cpu {

inline constexpr int kMaxOperands = 5;

// Minimum number of elements per thread of an element-wise loop.
inline constexpr int64_t kElementwiseGrain = 32768;

// The loops run over the shape of operand 0, the output, ordered by the output's strides, outermost first.
// Adjacent dims are merged where the strides of all operands allow it: operands with the same dense layout give
// one loop. Broadcast dims have stride 0. Strides and offsets count elements.
struct LoopNest {
  int operands = 0;
  int dims = 1;  // at least one
  int64_t numel = 1;
  int64_t size[kMaxDims] = {1};
  int64_t stride[kMaxOperands][kMaxDims] = {};

  int64_t inner() const { return size[dims - 1]; }
  int64_t inner_stride(int operand) const { return stride[operand][dims - 1]; }
  // Returns whether the operand is contiguous in iteration order: its offset at position i is i.
  bool flat(int operand) const {
    return dims == 1 ? stride[operand][0] == 1 || numel == 1 : flat_dims(operand);
  }

  // Sets offsets[k] to the offset of operand k at position `linear` of the iteration space.
  void locate(int64_t linear, int64_t* offsets) const {
    for (int k = 0; k < operands; ++k) offsets[k] = 0;
    for (int d = dims - 1; d >= 0; --d) {
      const int64_t i = d ? linear % size[d] : linear;
      linear /= size[d];
      for (int k = 0; k < operands; ++k) offsets[k] += i * stride[k][d];
    }
  }

 private:
  bool flat_dims(int operand) const {
    int64_t expected = 1;
    for (int d = dims - 1; d >= 0; expected *= size[d--])
      if (stride[operand][d] != expected) return false;
    return true;
  }
};

// Returns the loops over `count` operands, whose shapes broadcast to operand 0's. Requires numel > 0.
inline LoopNest make_loop_nest(const Tensor* const* operands, int count) {
  LoopNest nest;
  nest.operands = count;
  const Tensor& out = *operands[0];
  const int n = out.dim();
  nest.numel = out.numel();

  int order[kMaxDims];
  int used = 0;
  for (int d = 0; d < n; ++d)
    if (out.shape()[d] != 1) order[used++] = d;
  // Insertion sort: stable, and fast for few dims that are mostly in order.
  for (int i = 1; i < used; ++i)
    for (int j = i; j > 0 && out.strides()[order[j]] > out.strides()[order[j - 1]]; --j)
      std::swap(order[j], order[j - 1]);

  auto stride_of = [&](int k, int d) -> int64_t {
    const Tensor& x = *operands[k];
    const int own = d - (n - x.dim());
    return own < 0 || x.shape()[own] == 1 ? 0 : x.strides()[own];
  };
  nest.dims = 0;
  for (int i = 0; i < used; ++i) {
    const int d = order[i];
    int64_t strides[kMaxOperands];
    bool merges = nest.dims > 0;
    for (int k = 0; k < count; ++k) {
      strides[k] = stride_of(k, d);
      merges = merges && nest.stride[k][nest.dims - 1] == strides[k] * out.shape()[d];
    }
    const int at = merges ? nest.dims - 1 : nest.dims++;
    nest.size[at] = (merges ? nest.size[at] : 1) * out.shape()[d];
    for (int k = 0; k < count; ++k) nest.stride[k][at] = strides[k];
  }
  if (nest.dims == 0) nest.dims = 1;  // a single element
  return nest;
}

}  // namespace gradus::cpu
