// f32 matrix multiplication microkernels for small operands that are already in a cache: a block
// [rows][kPanel] of the result is accumulated in registers, as in BLIS. Strides count floats unless noted.
// Highway compiles this file once per instruction set.
#if defined(GRADUS_TENSOR_CPU_PRODUCT_BLOCKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADUS_TENSOR_CPU_PRODUCT_BLOCKS_INL_H
#undef GRADUS_TENSOR_CPU_PRODUCT_BLOCKS_INL_H
#else
#define GRADUS_TENSOR_CPU_PRODUCT_BLOCKS_INL_H
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>

#include "gradus/tensor/cpu/transpose.h"
#include "gradus/tensor/cpu/vectors-inl.h"
#include "gradus/tensor/tensor.h"

HWY_BEFORE_NAMESPACE();
namespace gradus::cpu::HWY_NAMESPACE {

constexpr int kPanel = 2 * kLanes;                   // columns of a block of the result
constexpr int kMaxRows = kRegisters == 16 ? 6 : 14;  // maximum rows of a block of the result

// Memory that a product prefetches into the second-level cache while it computes: in each of its K steps the
// cache line at `address`, which then advances by `step` bytes.
struct Prefetch {
  const char* address = nullptr;
  int64_t step = 0;
};

constexpr int kPrefetchColumns = 8;  // prefetch distance in columns of a; more cache lines would collide

// c[r][n] = sum_k a[r][k] * b[k][n] for r < R, k < K and n < kPanel, or c += if kAdd. a_row, a_column, b_row
// and c_row are strides; the columns of b and c are contiguous. A null prefetch.address means b.
template <int R, bool kAdd>
void product(const float* a, int64_t a_row, int64_t a_column, const float* b, int64_t b_row, int64_t K,
             float* c, int64_t c_row, Prefetch prefetch) {
  if (!prefetch.address) prefetch.address = reinterpret_cast<const char*>(b);
  Floats sum[R][2];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = hn::Zero(kFloats);
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {  // c is written at the end
    __builtin_prefetch(c + r * c_row, 1);
    __builtin_prefetch(c + r * c_row + kLanes, 1);
  }
#pragma GCC unroll 2
  for (int64_t k = 0; k < K; ++k, a += a_column, b += b_row) {
    __builtin_prefetch(a + kPrefetchColumns * a_column, 0, 3);
    __builtin_prefetch(prefetch.address, 0, 2);
    prefetch.address += prefetch.step;
    const Floats b0 = load(b), b1 = load(b + kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Floats v = hn::Set(kFloats, a[r * a_row]);
      sum[r][0] = hn::MulAdd(v, b0, sum[r][0]);
      sum[r][1] = hn::MulAdd(v, b1, sum[r][1]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    float* to = c + r * c_row;
    if constexpr (kAdd) {
      sum[r][0] = load(to) + sum[r][0];
      sum[r][1] = load(to + kLanes) + sum[r][1];
    }
    store(to, sum[r][0]);
    store(to + kLanes, sum[r][1]);
  }
}

// kProducts[R - 1] and kAccumulatingProducts[R - 1] are product<R, false> and product<R, true>.
using Product = void (*)(const float*, int64_t, int64_t, const float*, int64_t, int64_t, float*, int64_t,
                         Prefetch);
template <bool kAdd, size_t... R>
constexpr std::array<Product, kMaxRows> make_products(std::index_sequence<R...>) {
  return {&product<int(R) + 1, kAdd>...};
}
inline constexpr auto kProducts = make_products<false>(std::make_index_sequence<kMaxRows>());
inline constexpr auto kAccumulatingProducts = make_products<true>(std::make_index_sequence<kMaxRows>());

// Returns temporary memory for a kernel. Large sizes are rounded up to a power of two, so that the allocator
// can reuse the same blocks for calls of different sizes.
inline Tensor scratch(int64_t floats) {
  return empty({floats < (1 << 18) ? floats : int64_t(std::bit_ceil(uint64_t(floats)))}, {DType::kF32});
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Divides n rows into ceil_div(n, max_rows) blocks of nearly equal size and calls f(first, count) for each.
template <class F> void for_row_blocks(int64_t n, F f, int64_t max_rows = kMaxRows) {
  const int64_t parts = ceil_div(n, max_rows);
  for (int64_t i = 0; i < parts; ++i) f(n * i / parts, n * (i + 1) / parts - n * i / parts);
}

inline int64_t padded(int64_t columns) { return ceil_div(columns, kPanel) * kPanel; }

// A matrix with any strides.
struct StridedMatrix {
  const float* data;
  int64_t row, column;
};

// c[r][n] = sum_k a[r][k] * b[k][n] for r < rows, k < K and n < columns, or c += if `add`. Panel p of b,
// which are kPanel columns, begins at b + p * panel. `columns` is a multiple of kPanel.
inline void multiply_panels(StridedMatrix a, int64_t rows, const float* b, int64_t b_row, int64_t panel,
                            int64_t K, float* c, int64_t c_row, int64_t columns, bool add) {
  const auto& products = add ? kAccumulatingProducts : kProducts;
  for (int64_t n = 0; n < columns; n += kPanel, b += panel)
    for_row_blocks(rows, [&](int64_t first, int64_t count) {
      products[size_t(count - 1)](a.data + first * a.row, a.row, a.column, b, b_row, K, c + first * c_row + n,
                                  c_row, {});
    });
}

// to[r][c] = scale * from[r][c] for c < columns, zeros up to to_row if `pad`.
inline void copy_rows(const float* from, int64_t from_row, int64_t rows, int64_t columns, float scale,
                      float* to, int64_t to_row, bool pad = true) {
  const Floats factor = hn::Set(kFloats, scale);
  for (int64_t r = 0; r < rows; ++r, from += from_row, to += to_row) {
    int64_t c = 0;
    for (; c + kLanes <= columns; c += kLanes) store(to + c, load(from + c) * factor);
    for (; c < columns; ++c) to[c] = from[c] * scale;
    if (pad) std::fill(to + columns, to + to_row, 0.f);
  }
}

// Copies the transpose of from[rows][columns] into panels to[padded(rows) / kPanel][columns][kPanel], with
// zeros beyond `rows`.
inline void copy_transposed(const float* from, int64_t from_row, int64_t rows, int64_t columns, float* to) {
  for (int64_t r = 0; r < rows; r += kPanel, to += columns * kPanel) {
    const int64_t count = std::min<int64_t>(kPanel, rows - r);
    if (count < kPanel) std::fill_n(to, columns * kPanel, 0.f);
    transpose(sizeof(float), to, kPanel, from + r * from_row, from_row, columns, count);
  }
}

}  // namespace gradus::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
