// Positions of an index space, found by a kernel from one number.
#pragma once

#include <cstdint>

#include "gradus/tensor/base/dtype.h"
#include "gradus/tensor/cuda/kernels/kernel.h"
#include "gradus/tensor/cuda/kernels/strided_index.h"

namespace gradus::cuda {

// Numbers below this are divided without a division. An index with more elements is taken in parts.
inline constexpr int64_t kMaxDivided = (int64_t(1) << 31) - 1;

// Division of n < 2^31 by a number that is known before the kernel starts, by a product and a shift.
// Source: Granlund and Montgomery, Division by Invariant Integers using Multiplication, figure 4.1.
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

// Operands of a kernel, their dtypes known at run time.
template <int operands> struct StridedOperands {
  int dims;
  uint32_t count;
  Divider size[kMaxDims];
  int64_t stride[operands][kMaxDims];
  void* data[operands];
  DType dtype[operands];

  // Sets the element offsets of all operands at position i of the index space.
  __device__ __forceinline__ void locate(uint32_t i, int64_t* offsets) const {
#pragma unroll
    for (int k = 0; k < operands; ++k) offsets[k] = 0;
#pragma unroll
    for (int d = kMaxDims - 1; d >= 0; --d) {
      if (d >= dims) continue;
      const uint32_t above = d ? size[d].quotient(i) : 0, at = i - above * size[d].divisor;
      i = above;
#pragma unroll
      for (int k = 0; k < operands; ++k) offsets[k] += at * stride[k][d];
    }
  }
};

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
