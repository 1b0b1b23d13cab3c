// out[g, m, n] = sum_k a[g, m, k] * b[g, k, n] + bias[n] for bf16 operands, computed in f32: blocked and
// packed as in BLIS. Highway compiles the file once per instruction set and selects one at run time. `out` is
// row-major, bf16 or f32; a, b and bias may have any strides; bias may be undefined. Callers guarantee
// fitting shapes and K > 0. The calling thread and the worker threads of parallel_for compute. kLanes is the
// number of f32 in a vector, kPanel = 2 kLanes.
#include "gradus/tensor/cpu/linalg/matmul_kernels.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/conv/narrow_matmul.cc"
#include "gradus/tensor/cpu/levels.h"

#include <hwy/foreach_target.h>

#include "gradus/tensor/cpu/conv/products-inl.h"
#include "gradus/tensor/cpu/transpose-inl.h"

// Note [Products of bf16 in f32]
// Operands are converted to f32 while they are packed: b into panels [K][kPanel], a in its own order. A block
// of the result is accumulated in f32 over slices of kDepth along K, and rounded once after the last slice.
// Converting whole operands first would take three more passes over memory.
//
// If many blocks of rows read the same panels, all panels are packed first. Otherwise a panel is packed when
// it is used, and stays in a cache.
//
// A block has at most kMaxBlockRows rows and kMaxBlockColumns columns, and fewer columns if there would be
// too few blocks to balance the threads. Each element is the sum of the same products in the same order for
// any block size and any number of threads.

HWY_BEFORE_NAMESPACE();
namespace gradus::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kMaxBlockRows = 8 * kMaxRows, kMaxBlockColumns = 16 * kPanel, kDepth = 384;
// Floats per packed row of a: padded, so that rows do not begin in the same few sets of the cache.
constexpr int64_t kPackedRowStride = kDepth + kLanes;

struct Matrix {
  const bf16* data;
  int64_t row, column;  // strides
  const bf16* at(int64_t i, int64_t j) const { return data + i * row + j * column; }
};
// Returns matrix i of a batch [G, ., .], or the only matrix.
Matrix matrix(const Tensor& x, int64_t i) {
  return {x.ptr<bf16>() + (x.dim() == 3 ? i * x.stride(0) : 0), x.stride(-2), x.stride(-1)};
}

// to[i] = from[i * step], for i < n.
void widen(const bf16* from, int64_t step, int64_t n, float* to) {
  int64_t i = 0;
  if (step == 1)
    for (; i + kLanes <= n; i += kLanes) store(to + i, load(from + i));
  for (; i < n; ++i) to[i] = from[i * step];
}

// to[i][j] = b[k + i][n + j] for i < K and j < count, else 0 up to column kPanel.
void pack_panel(const Matrix& b, int64_t k, int64_t K, int64_t n, int64_t count, float* to) {
  int64_t done = 0;
  if (count == kPanel && b.row == 1)
    for (; done + kLanes <= K; done += kLanes)
      for (int64_t half = 0; half < kPanel; half += kLanes) {
        Floats columns[kLanes];
        load_columns(b.at(k + done, n + half), b.column, kLanes, columns);
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) store(to + (done + i) * kPanel + half, columns[i]);
      }
  if (count == kPanel && b.column == 1)
    for (; done < K; ++done) {
      const bf16* from = b.at(k + done, n);
      __builtin_prefetch(from + kPanel, 0, 2);  // the next panel: its rows may be pages apart
      store(to + done * kPanel, load(from));
      store(to + done * kPanel + kLanes, load(from + kLanes));
    }
  for (; done < K; ++done) {
    widen(b.at(k + done, n), b.column, count, to + done * kPanel);
    std::fill(to + done * kPanel + count, to + (done + 1) * kPanel, 0.0f);
  }
}

// Rows [m, m + rows) and columns [k, k + K) of a, converted to f32, with the strides `row` and `column`.
struct PackedRows {
  const float* data;
  int64_t row, column;
};
PackedRows pack_rows(const Matrix& a, int64_t m, int64_t rows, int64_t k, int64_t K, float* to) {
  if (a.row == 1 && a.column != 1) {
    for (int64_t i = 0; i < K; ++i) widen(a.at(m, k + i), 1, rows, to + i * rows);
    return {to, 1, rows};
  }
  for (int64_t i = 0; i < rows; ++i) widen(a.at(m + i, k), a.column, K, to + i * kPackedRowStride);
  return {to, kPackedRowStride, 1};
}

// to[i] = sums[i] + bias[i], for i < n.
template <class T> void write_row(const float* sums, const float* bias, int64_t n, T* to) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(to + i, load(sums + i) + load(bias + i));
  for (; i < n; ++i) to[i] = T(sums[i] + bias[i]);
}

// Returns the number of columns of a block: the largest that gives at least 4 blocks per thread. `others` is
// the number of blocks along the other dims.
int64_t choose_block_columns(int64_t width, int64_t others) {
  int64_t columns = std::min(kMaxBlockColumns, width);
  while (columns > kPanel && others * ceil_div(width, columns) < 4 * num_threads())
    columns = ceil_div(columns / 2, kPanel) * kPanel;
  return columns;
}

// Packs the panel at column n of rows [k, k + depth) of matrix i of b.
void pack_panel(const Tensor& b, int64_t i, int64_t k, int64_t depth, int64_t n, float* to) {
  pack_panel(matrix(b, i), k, depth, n, std::min<int64_t>(kPanel, b.size(-1) - n), to);
}

// All panels of several matrices: [matrices][slices of K][panels][depth of the slice][kPanel].
struct PackedPanels {
  Tensor data;
  int64_t K, width;
  float* at(int64_t i, int64_t k, int64_t depth, int64_t n) const {
    return data.ptr<float>() + (i * K + k) * width + n * depth;
  }
};
PackedPanels pack_all_panels(const Tensor& b, int64_t matrices) {
  const int64_t K = b.size(-2), panels = ceil_div(b.size(-1), kPanel), width = panels * kPanel;
  const PackedPanels packed{scratch(matrices * K * width), K, width};
  parallel_for(0, matrices * panels, 1 + 8192 / (K * kPanel), [&](int64_t first, int64_t last) {
    for (int64_t item = first; item < last; ++item)
      for (int64_t k = 0; k < K; k += kDepth) {
        const int64_t i = item / panels, n = item % panels * kPanel, depth = std::min(kDepth, K - k);
        pack_panel(b, i, k, depth, n, packed.at(i, k, depth, n));
      }
  });
  return packed;
}

// T: the element type of `out`. One task computes one block of one matrix.
template <class T> void multiply(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias) {
  const int64_t batch = out.dim() == 3 ? out.size(0) : 1, M = out.size(-2), N = out.size(-1), K = a.size(-1);
  const int64_t width = ceil_div(N, kPanel) * kPanel, row_blocks = ceil_div(M, kMaxBlockRows);
  const int64_t block_columns = choose_block_columns(width, batch * row_blocks);
  const int64_t column_blocks = ceil_div(width, block_columns), blocks = row_blocks * column_blocks;
  const int64_t matrices = b.dim() == 3 && b.size(0) > 1 && b.stride(0) != 0 ? batch : 1;  // of b
  const bool packed_first = row_blocks > 2 || matrices < batch;
  const Tensor addends = scratch(width);
  std::fill_n(addends.ptr<float>(), width, 0.0f);
  if (bias.defined()) widen(bias.ptr<bf16>(), bias.stride(0), N, addends.ptr<float>());
  const PackedPanels packed = packed_first ? pack_all_panels(b, matrices) : PackedPanels{};
  const int64_t max_rows = std::min(kMaxBlockRows, M);
  // With several slices the partial sums of a whole block are stored, with one slice only those of one panel.
  const int64_t sum_columns = K > kDepth ? block_columns : kPanel;
  const int64_t grain = 1 + 32768 / (max_rows * block_columns * K);
  parallel_for(0, batch * blocks, grain, [&](int64_t first, int64_t last) {
    const Tensor buffers = scratch(max_rows * kPackedRowStride + kDepth * kPanel + max_rows * sum_columns);
    float* const a_buffer = buffers.ptr<float>();
    float* const b_buffer = a_buffer + max_rows * kPackedRowStride;
    float* const sums = b_buffer + kDepth * kPanel;
    for (int64_t item = first; item < last; ++item) {
      const int64_t g = item / blocks, r = item % blocks / column_blocks;
      const int64_t m = M * r / row_blocks, rows = M * (r + 1) / row_blocks - m;
      const int64_t first_column = item % column_blocks * block_columns,
                    end_column = std::min(first_column + block_columns, width);
      for (int64_t k = 0; k < K; k += kDepth) {
        const int64_t depth = std::min(kDepth, K - k);
        const PackedRows a_rows = pack_rows(matrix(a, g), m, rows, k, depth, a_buffer);
        for (int64_t n = first_column; n < end_column; n += kPanel) {
          if (!packed_first) pack_panel(b, g % matrices, k, depth, n, b_buffer);
          const float* b_panel = packed_first ? packed.at(g % matrices, k, depth, n) : b_buffer;
          float* const to = sums + (K > kDepth ? n - first_column : 0);
          for_row_blocks(rows, [&](int64_t at, int64_t count) {
            (k > 0 ? kAccumulatingProducts : kProducts)[size_t(count - 1)](
                a_rows.data + at * a_rows.row, a_rows.row, a_rows.column, b_panel, kPanel, depth,
                to + at * sum_columns, sum_columns, {});
          });
          if (k + depth < K) continue;
          for (int64_t i = 0; i < rows; ++i)
            write_row(to + i * sum_columns, addends.ptr<float>() + n, std::min<int64_t>(kPanel, N - n),
                      out.ptr<T>() + (g * M + m + i) * N + n);
        }
      }
    }
  });
}

void narrow_matmul(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias) {
  if (out.numel() == 0) return;
  (out.dtype() == DType::kBF16 ? multiply<bf16> : multiply<float>)(out, a, b, bias);
}

}  // namespace
}  // namespace gradus::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
void gradus::narrow_matmul(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias) {
  GRADUS_DISPATCH(narrow_matmul)(out, a, b, bias);
}
#endif
