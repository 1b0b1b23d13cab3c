// Matrix transposition between two places in memory.
#pragma once

#include <cstdint>

namespace gradus::cpu {

// Writes dst[r * dst_row + c] = src[c * src_col + r] for r < rows, c < cols. Elements have `size` bytes (1,
// 2, 4 or 8), strides count elements. The source is contiguous along r, the destination along c.
void transpose(int64_t size, void* dst, int64_t dst_row, const void* src, int64_t src_col, int64_t rows,
               int64_t cols);

}  // namespace gradus::cpu
