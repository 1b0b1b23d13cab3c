// Out-of-place matrix transposition in the calling thread.
#pragma once

#include <cstdint>

namespace gradus::cpu {

// dst[r * dst_stride + c] = src[c * src_stride + r] for r < rows, c < cols. Elements have `size` bytes
// (1, 2, 4 or 8); the strides dst_stride and src_stride count elements. dst and src do not overlap.
void transpose(int64_t size, void* dst, int64_t dst_stride, const void* src, int64_t src_stride, int64_t rows,
               int64_t cols);

}  // namespace gradus::cpu
