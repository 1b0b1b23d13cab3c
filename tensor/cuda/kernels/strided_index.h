// StridedIndex: the loops over the elements of operands that broadcast, as few as possible, the innermost last.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "gradus/tensor/base/dtype.h"

namespace gradus::cuda {

inline constexpr int kMaxLoops = 8;
inline constexpr int kMaxOperands = 4;

// What a kernel reads or writes.
struct View {
  void* data;
  DType dtype;

  template <class T> T* as() const { return static_cast<T*>(data); }
};

// Of the dims, in elements. A broadcast dim has stride 0.
using Strides = std::array<int64_t, kMaxLoops>;

struct StridedIndex {
  int operands = 0;
  int dims = 1;
  int64_t numel = 1;
  std::array<int64_t, kMaxLoops> size{1};
  std::array<Strides, kMaxOperands> stride{};

  int64_t inner_stride(int operand) const { return stride[size_t(operand)][size_t(dims - 1)]; }
};

// Orders the dims by the strides of operand 0, the output, and merges those that every operand allows to. All
// strides are for the same sizes.
inline StridedIndex make_strided_index(std::span<const int64_t> sizes, std::span<const Strides> strides) {
  StridedIndex index;
  index.operands = static_cast<int>(strides.size());
  std::array<size_t, kMaxLoops> order{};
  size_t used = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    index.numel *= sizes[d];
    if (sizes[d] != 1) order[used++] = d;
  }
  std::stable_sort(order.begin(), order.begin() + used,
                   [&](size_t a, size_t b) { return strides[0][a] > strides[0][b]; });
  size_t dims = 0;
  for (size_t i = 0; i < used; ++i) {
    const size_t d = order[i];
    bool merges = dims > 0;
    for (size_t k = 0; k < strides.size(); ++k)
      merges = merges && index.stride[k][dims - 1] == strides[k][d] * sizes[d];
    const size_t at = merges ? dims - 1 : dims++;
    index.size[at] = (merges ? index.size[at] : 1) * sizes[d];
    for (size_t k = 0; k < strides.size(); ++k) index.stride[k][at] = strides[k][d];
  }
  index.dims = std::max(1, static_cast<int>(dims));
  return index;
}

// Calls f(index, offsets) for parts of an index space with at most `most` elements each, which together are the whole.
// `offsets` are those of each operand's first element.
template <class F>
void for_each_part(const StridedIndex& index, int64_t most, const std::array<int64_t, kMaxOperands>& offsets,
                   F&& f) {
  if (index.numel <= most) return f(index, offsets);
  const auto largest = static_cast<size_t>(
      std::max_element(index.size.begin(), index.size.begin() + index.dims) - index.size.begin());
  const int64_t rest = index.numel / index.size[largest];  // elements at one position of that loop
  StridedIndex first = index, second = index;
  first.size[largest] = index.size[largest] / 2;
  second.size[largest] = index.size[largest] - first.size[largest];
  first.numel = first.size[largest] * rest;
  second.numel = second.size[largest] * rest;
  for_each_part(first, most, offsets, f);
  auto behind = offsets;
  for (size_t k = 0; k < size_t(index.operands); ++k)
    behind[k] += first.size[largest] * index.stride[k][largest];
  for_each_part(second, most, behind, f);
}

}  // namespace gradus::cuda
