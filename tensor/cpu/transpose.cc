// Matrix transposition in two levels of tiles, in the calling thread: n x n tiles are transposed in vector
// registers, and tiles are visited in squares that are one cache line wide. transpose.h has the index formula.
#include "gradus/tensor/cpu/transpose.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace gradus::cpu {
namespace {

template <class T>
void transpose_scalar(T* __restrict dst, int64_t dst_stride, const T* __restrict src, int64_t src_stride,
                      int64_t rows, int64_t cols) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) dst[r * dst_stride + c] = src[c * src_stride + r];
}

// Transposes an n x n tile in registers in log2(n) rounds. A round interleaves vector i with vector i + n / 2.
template <class T, int n> void transpose_tile(T* dst, int64_t dst_stride, const T* src, int64_t src_stride) {
  typedef T Vector __attribute__((vector_size(n * sizeof(T))));
  Vector v[n], w[n];
  for (int c = 0; c < n; ++c) std::memcpy(&v[c], src + c * src_stride, sizeof(Vector));
  auto interleave = [&]<size_t... I>(std::index_sequence<I...>) {
    for (int i = 0; i < n / 2; ++i) {
      w[2 * i] = __builtin_shufflevector(v[i], v[i + n / 2], (I / 2 + (I % 2) * n)...);
      w[2 * i + 1] = __builtin_shufflevector(v[i], v[i + n / 2], (n / 2 + I / 2 + (I % 2) * n)...);
    }
    std::copy_n(w, n, v);
  };
  for (int round = 1; round < n; round *= 2) interleave(std::make_index_sequence<n>());
  for (int r = 0; r < n; ++r) std::memcpy(dst + r * dst_stride, &v[r], sizeof(Vector));
}

// Squares of kLine x kLine elements use each cache line of source and destination completely. The next square is
// prefetched explicitly, because the hardware prefetcher does not follow strides of src_stride elements.
template <class T, int n>
void transpose_tiled(void* dst_bytes, int64_t dst_stride, const void* src_bytes, int64_t src_stride,
                     int64_t rows, int64_t cols) {
  T* dst = static_cast<T*>(dst_bytes);
  const T* src = static_cast<const T*>(src_bytes);
  constexpr int64_t kLine = std::max<int64_t>(64 / sizeof(T), n);
  const int64_t whole_rows = rows / n * n, tiled_cols = cols / n * n;
  for (int64_t first_row = 0; first_row < whole_rows; first_row += kLine)
    for (int64_t first_col = 0; first_col < tiled_cols; first_col += kLine) {
      const int64_t end_row = std::min(first_row + kLine, whole_rows),
                    end_col = std::min(first_col + kLine, tiled_cols);
      for (int64_t c = first_col; c < end_col; ++c) __builtin_prefetch(src + c * src_stride + end_row);
      for (int64_t r = first_row; r < end_row; r += n)
        for (int64_t c = first_col; c < end_col; c += n)
          transpose_tile<T, n>(dst + r * dst_stride + c, dst_stride, src + c * src_stride + r, src_stride);
    }
  transpose_scalar(dst + tiled_cols, dst_stride, src + tiled_cols * src_stride, src_stride, whole_rows,
                   cols - tiled_cols);
  transpose_scalar(dst + whole_rows * dst_stride, dst_stride, src + whole_rows, src_stride, rows - whole_rows,
                   cols);
}

}  // namespace

void transpose(int64_t size, void* dst, int64_t dst_stride, const void* src, int64_t src_stride, int64_t rows,
               int64_t cols) {
  switch (size) {
    case 1:
      return transpose_tiled<uint8_t, 16>(dst, dst_stride, src, src_stride, rows, cols);
    case 2:
      return transpose_tiled<uint16_t, 8>(dst, dst_stride, src, src_stride, rows, cols);
    case 4:
      return transpose_tiled<uint32_t, 8>(dst, dst_stride, src, src_stride, rows, cols);
    default:
      return transpose_tiled<uint64_t, 4>(dst, dst_stride, src, src_stride, rows, cols);
  }
}

}  // namespace gradus::cpu
