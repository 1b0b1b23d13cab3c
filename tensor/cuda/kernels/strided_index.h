// Host code: View, an untyped pointer to an operand of a kernel, and for_each_part, which splits a
// StridedIndex (the index space of strided operands, tensor/base/strided_index.h) into parts.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "gradus/tensor/base/dtype.h"
#include "gradus/tensor/base/strided_index.h"

namespace gradus::cuda {

using gradus::StridedIndex;

// The first element of an operand, in device memory that the View does not own.
struct View {
  void* data;
  DType dtype;

  template <class T> T* as() const { return static_cast<T*>(data); }
};
// A tensor's strides by dim, in elements. A broadcast dim has stride 0.
using Strides = std::array<int64_t, kMaxDims>;

// Returns the index space of a shape, for operands with these strides, the output first.
inline StridedIndex make_strided_index(std::span<const int64_t> sizes, std::span<const Strides> strides) {
  return gradus::make_strided_index(sizes, static_cast<int>(strides.size()),
                                    [&](int k, int d) { return strides[size_t(k)][size_t(d)]; });
}

// Calls f(part, offsets) for disjoint parts of an index space with at most max_elements elements each: halves
// the largest dim until the parts are small enough, as TensorIterator does for 32-bit indexing. offsets[k],
// in elements, is that of operand k's first element in the part; the argument `offsets`, in the whole.
template <class F>
void for_each_part(const StridedIndex& index, int64_t max_elements,
                   const std::array<int64_t, kMaxOperands>& offsets, F&& f) {
  if (index.numel <= max_elements) return f(index, offsets);
  const auto largest = std::max_element(index.size, index.size + index.dims) - index.size;
  const int64_t slice = index.numel / index.size[largest];  // at one position of that dim
  StridedIndex first = index, second = index;
  first.size[largest] = index.size[largest] / 2;
  second.size[largest] = index.size[largest] - first.size[largest];
  first.numel = first.size[largest] * slice;
  second.numel = second.size[largest] * slice;
  for_each_part(first, max_elements, offsets, f);
  auto second_offsets = offsets;
  for (int k = 0; k < index.operands; ++k)
    second_offsets[size_t(k)] += first.size[largest] * index.stride[k][largest];
  for_each_part(second, max_elements, second_offsets, f);
}

}  // namespace gradus::cuda
