#include "gradus/tensor/cpu/conv/narrow_matmul.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/conv/narrow_matmul.cc"
#include "gradus/tensor/cpu/levels.h"

#include <hwy/foreach_target.h>

#include "gradus/tensor/cpu/conv/products-inl.h"
#include "gradus/tensor/cpu/transpose-inl.h"

// Note [Products of bf16 in f32]
// Operands are widened to f32 where they are packed for the registers anyway: b into panels [K][kPanel], a as it
// lies. A block of the result, kRows by kColumns, is summed in f32 over stretches of kDepth and rounded once.
// Widening whole operands for a product in f32 instead takes three more passes over memory.
//
// Where several blocks of rows read the same panels, all panels are packed first. Otherwise each is packed when
// it is used, and stays in a cache.

HWY_BEFORE_NAMESPACE();
namespace gradus::cpu::HWY_NAMESPACE {
namespace {

constexpr int64_t kRows = 8 * kMostRows, kColumns = 16 * kPanel, kDepth = 384;
constexpr int64_t kRowOfA = kDepth + kLanes;  // rows 4 KiB apart would compete for the same places in a cache

struct Matrix {
  const bf16* data;
  int64_t row, column;  // steps
  const bf16* at(int64_t i, int64_t j) const { return data + i * row + j * column; }
};
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

// Writes rows [k, k + K) and columns [n, n + count) of b to to[K][kPanel], and zeros beside them.
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
  for (; done < K; ++done) {
    widen(b.at(k + done, n), b.column, count, to + done * kPanel);
    std::fill(to + done * kPanel + count, to + (done + 1) * kPanel, 0.0f);
  }
}

// Rows [m, m + rows) and columns [k, k + K) of a, in f32.
struct PackedRows {
  const float* data;
  int64_t row, column;
};
PackedRows pack_rows(const Matrix& a, int64_t m, int64_t rows, int64_t k, int64_t K, float* to) {
  if (a.row == 1 && a.column != 1) {
    for (int64_t i = 0; i < K; ++i) widen(a.at(m, k + i), 1, rows, to + i * rows);
    return {to, 1, rows};
  }
  for (int64_t i = 0; i < rows; ++i) widen(a.at(m + i, k), a.column, K, to + i * kRowOfA);
  return {to, kRowOfA, 1};
}

// to[i] = sums[i] + bias[i], for i < n.
template <class T> void write_row(const float* sums, const float* bias, int64_t n, T* to) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(to + i, load(sums + i) + load(bias + i));
  for (; i < n; ++i) to[i] = T(sums[i] + bias[i]);
}

template <class T> void multiply(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& bias) {
  const int64_t batch = out.dim() == 3 ? out.size(0) : 1, M = out.size(-2), N = out.size(-1), K = a.size(-1);
  const int64_t panels = (N + kPanel - 1) / kPanel, width = panels * kPanel;
  const int64_t blocks_of_rows = row_blocks(M, kRows), blocks_of_columns = (width + kColumns - 1) / kColumns;
  const int64_t blocks = blocks_of_rows * blocks_of_columns;
  const int64_t shared = b.dim() == 3 && b.size(0) > 1 && b.stride(0) != 0 ? batch : 1;  // matrices b
  const bool packed_first = blocks_of_rows > 1 || shared < batch;

  const Tensor addends = scratch(width);
  std::fill_n(addends.ptr<float>(), width, 0.0f);
  if (bias.defined()) widen(bias.ptr<bf16>(), bias.stride(0), N, addends.ptr<float>());

  // All panels: [shared][stretches of K][panels][K of a stretch][kPanel]
  const int64_t grain_of_panels = 1 + 8192 / (K * kPanel);
  const Tensor packed = packed_first ? scratch(shared * K * width) : Tensor();
  const auto packed_panel = [&](int64_t which, int64_t k, int64_t depth, int64_t panel) {
    return packed.ptr<float>() + (which * K + k) * width + panel * depth * kPanel;
  };
  if (packed_first)
    parallel_for(0, shared * panels, grain_of_panels, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i)
        for (int64_t k = 0; k < K; k += kDepth) {
          const int64_t depth = std::min(kDepth, K - k), n = i % panels * kPanel;
          pack_panel(matrix(b, i / panels), k, depth, n, std::min<int64_t>(kPanel, N - n),
                     packed_panel(i / panels, k, depth, i % panels));
        }
    });

  const int64_t rows_at_once = std::min(kRows, M), columns_at_once = std::min(kColumns, width);
  parallel_for(
      0, batch * blocks, 1 + 32768 / (rows_at_once * columns_at_once * K), [&](int64_t first, int64_t last) {
        const int64_t floats_of_a = rows_at_once * kRowOfA, floats_of_panel = kDepth * kPanel;
        const Tensor bytes = scratch(floats_of_a + floats_of_panel + rows_at_once * columns_at_once);
        float* const rows_of_a = bytes.ptr<float>();
        float* const panel_of_b = rows_of_a + floats_of_a;
        float* const sums = panel_of_b + floats_of_panel;
        for (int64_t item = first; item < last; ++item) {
          const int64_t g = item / blocks, r = item % blocks / blocks_of_columns;
          const int64_t m = M * r / blocks_of_rows, rows = M * (r + 1) / blocks_of_rows - m;
          const int64_t n = item % blocks_of_columns * kColumns, columns = std::min(kColumns, width - n);
          for (int64_t k = 0; k < K; k += kDepth) {
            const int64_t depth = std::min(kDepth, K - k);
            const PackedRows left = pack_rows(matrix(a, g), m, rows, k, depth, rows_of_a);
            for (int64_t c = 0; c < columns; c += kPanel) {
              const float* right = panel_of_b;
              if (packed_first)
                right = packed_panel(g % shared, k, depth, (n + c) / kPanel);
              else
                pack_panel(matrix(b, g), k, depth, n + c, std::min<int64_t>(kPanel, N - n - c), panel_of_b);
              for_row_blocks(rows, [&](int64_t at, int64_t count) {
                (k > 0 ? kAddedProducts : kProducts)[size_t(count - 1)](left.data + at * left.row, left.row,
                                                                        left.column, right, kPanel, depth,
                                                                        sums + at * columns + c, columns, {});
              });
            }
          }
          T* const to = out.ptr<T>() + (g * M + m) * N + n;
          for (int64_t i = 0; i < rows; ++i)
            write_row(sums + i * columns, addends.ptr<float>() + n, std::min(columns, N - n), to + i * N);
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
  GRADUS_LEVEL(narrow_matmul)(out, a, b, bias);
}
#endif
