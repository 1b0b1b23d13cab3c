// StridedIndex (tensor/base/strided_index.h) of a kernel's operands, and its parts.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "gradus/tensor/base/dtype.h"
#include "gradus/tensor/base/strided_index.h"

namespace gradus::cuda {

using gradus::StridedIndex;

// What a kernel reads or writes.
struct View {
  void* data;
  DType dtype;

  template <class T> T* as() const { return static_cast<T*>(data); }
};

// Of the dims, in elements. A broadcast dim has stride 0.
using Strides = std::array<int64_t, kMaxDims>;

// Returns the loops over operands of these strides, the output first.
inline StridedIndex make_strided_index(std::span<const int64_t> sizes, std::span<const Strides> strides) {
  return gradus::make_strided_index(sizes, static_cast<int>(strides.size()),
                                    [&](int k, int d) { return strides[size_t(k)][size_t(d)]; });
}

// Calls f(index, offsets) for parts of an index space with at most `most` elements each, which together are the whole.
// `offsets` are those of each operand's first element.
template <class F>
void for_each_part(const StridedIndex& index, int64_t most, const std::array<int64_t, kMaxOperands>& offsets,
                   F&& f) {
  if (index.numel <= most) return f(index, offsets);
  const auto largest = std::max_element(index.size, index.size + index.dims) - index.size;
  const int64_t rest = index.numel / index.size[largest];  // elements at one position of that loop
  StridedIndex first = index, second = index;
  first.size[largest] = index.size[largest] / 2;
  second.size[largest] = index.size[largest] - first.size[largest];
  first.numel = first.size[largest] * rest;
  second.numel = second.size[largest] * rest;
  for_each_part(first, most, offsets, f);
  auto behind = offsets;
  for (int k = 0; k < index.operands; ++k)
    behind[size_t(k)] += first.size[largest] * index.stride[k][largest];
  for_each_part(second, most, behind, f);
}

}  // namespace gradus::cuda
