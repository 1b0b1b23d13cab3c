// LoopNest: the loops of an element-wise kernel, in memory order and as few as possible.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gradus/tensor/tensor.h"

namespace gradus::cpu {

inline constexpr int kMaxOperands = 5;

// Elements below which a loop is not worth a second thread.
inline constexpr int64_t kElementwiseGrain = 32768;

// The iteration space is that of operand 0, the output. Its dims are ordered by the output's strides,
// outermost first. Neighboring dims are merged where every operand allows it, so operands of one dense layout
// give one loop. A broadcast operand has stride 0.
struct LoopNest {
  int operands = 0;
  int dims = 1;  // at least one
  int64_t numel = 1;
  int64_t size[kMaxDims] = {1};
  int64_t stride[kMaxOperands][kMaxDims] = {};

  int64_t inner() const { return size[dims - 1]; }
  int64_t inner_stride(int operand) const { return stride[operand][dims - 1]; }
  // Returns whether the operand is read or written in order, without gaps.
  bool flat(int operand) const {
    return dims == 1 ? stride[operand][0] == 1 || numel == 1 : flat_dims(operand);
  }

  // Sets the element offsets of all operands at position `linear` of the space.
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

// Makes the nest of `count` operands. Each operand's shape broadcasts to operand 0's. Requires numel > 0.
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
  // Insertion sort, stable: few dimensions, mostly in order already.
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
