// Out-of-place matrix transposition.
#pragma once

#include <cstdint>

namespace gradus::cpu {

// dst[r * dst_row_stride + c] = src[c * src_column_stride + r] for r < rows, c < cols. Elements have `size` bytes (1, 2, 4 or 8);
// the strides dst_row_stride and src_column_stride count elements. dst and src do not overlap.
void transpose(int64_t size, void* dst, int64_t dst_row_stride, const void* src, int64_t src_column_stride,
               int64_t rows, int64_t cols);

}  // namespace gradus::cpu
