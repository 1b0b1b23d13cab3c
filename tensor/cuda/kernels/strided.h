// Kernel arguments for strided operands. A thread maps the linear (row-major) position of an element in the
// index space to the offset of the element in each operand (StridedOperands::locate), without divisions.
#pragma once

#include <cstdint>

#include "gradus/tensor/base/dtype.h"
#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/kernels/strided_index.h"

namespace gradus::cuda {

// Maximal number of elements of a StridedOperands: Divider takes less than 2^31. for_each_part splits others.
inline constexpr int64_t kMaxDividend = (int64_t(1) << 31) - 1;

// Division of n < 2^31 by a divisor, 1 <= d < 2^31, that the host knows: a product and a shift instead of a
// division. Source: Granlund and Montgomery, Division by Invariant Integers using Multiplication, figure 4.1.
struct Divider {
  uint32_t divisor = 1, factor = 1, shift = 0;

  Divider() = default;
  explicit Divider(int64_t d) : divisor(static_cast<uint32_t>(d)) {
    while ((uint64_t(1) << shift) < divisor) ++shift;
    factor = static_cast<uint32_t>((((uint64_t(1) << shift) - divisor) << 32) / divisor + 1);
  }
  __device__ __forceinline__ uint32_t quotient(uint32_t n) const {
    return (static_cast<uint32_t>(uint64_t(n) * factor >> 32) + n) >> shift;
  }
};

// Operands of a kernel with dtypes known at run time: sizes of the index space, outermost loop first, then
// pointers, dtypes and strides in elements of each operand.
template <int operands> struct StridedOperands {
  int dims;
  uint32_t count;
  Divider size[kMaxDims];
  int64_t stride[operands][kMaxDims];
  void* data[operands];
  DType dtype[operands];

  // Sets offsets[k] to the offset of operand k, in elements, at position i < count.
  __device__ __forceinline__ void locate(uint32_t i, int64_t* offsets) const {
#pragma unroll
    for (int k = 0; k < operands; ++k) offsets[k] = 0;
#pragma unroll
    for (int d = kMaxDims - 1; d >= 0; --d) {
      if (d >= dims) continue;
      const uint32_t outer = d ? size[d].quotient(i) : 0, at = i - outer * size[d].divisor;
      i = outer;
#pragma unroll
      for (int k = 0; k < operands; ++k) offsets[k] += at * stride[k][d];
    }
  }
};

// Returns the arguments for numel <= kMaxDividend. offsets[k], in elements, is added to views[k].data.
template <int operands>
StridedOperands<operands> strided_operands(const StridedIndex& index, const View* views,
                                           const std::array<int64_t, kMaxOperands>& offsets) {
  StridedOperands<operands> o{};
  o.dims = index.dims;
  o.count = static_cast<uint32_t>(index.numel);
  for (int d = 0; d < index.dims; ++d) o.size[d] = Divider(index.size[size_t(d)]);
  for (int k = 0; k < operands; ++k) {
    for (int d = 0; d < index.dims; ++d) o.stride[k][d] = index.stride[size_t(k)][size_t(d)];
    o.data[k] = static_cast<char*>(views[k].data) + offsets[size_t(k)] * size_of(views[k].dtype);
    o.dtype[k] = views[k].dtype;
  }
  return o;
}

}  // namespace gradus::cuda
