#include "gradus/tensor/cpu/conv/weight_grad.h"

#include <immintrin.h>

#include <array>
#include <cstring>
#include <vector>

#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/runtime/processor.h"

// Note [Weight gradient in registers]
//   dw[kh, (kw,c), o] = sum over pixels (n,p,q) of x[n, p*s+kh, (q*s+kw, c)] dy[n,p,q,o]
// For a row kh of the filter, (kw, c) runs over KW*C neighbors in memory. A tile is R of these neighbors by
// V*16 filters o. Its sums stay in R*V vector registers. For each pixel it takes V loads of dy, R broadcasts
// of x, and R*V fused multiply-adds. Pixels come in blocks of rows that stay in the first-level cache while
// all tiles visit them. Threads divide the tiles among them, so no sum is split between threads, and the
// result does not depend on their number.

namespace gradus {
namespace {

constexpr int kLanes = 16;

// Rows of pixels: the first dy and the first x of each row, and the steps between neighboring pixels.
struct PixelRows {
  const float* const* dy;
  const float* const* x;
  int64_t rows, pixels, dy_step, x_step;
};

// Adds to sums[R][stride], over all pixels, x[0..R) times dy[0..V*16).
template <int V, int R>
[[gnu::target("avx512f")]] void add_tile(const PixelRows& b, int64_t dy_at, int64_t x_at, float* sums,
                                         int64_t stride) {
  __m512 sum[R][V];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) sum[r][v] = _mm512_setzero_ps();
  for (int64_t i = 0; i < b.rows; ++i) {
    const float *dy = b.dy[i] + dy_at, *x = b.x[i] + x_at;
    for (int64_t q = 0; q < b.pixels; ++q, dy += b.dy_step, x += b.x_step) {
      __m512 g[V];
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) g[v] = _mm512_loadu_ps(dy + v * kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const __m512 value = _mm512_set1_ps(x[r]);
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) sum[r][v] = _mm512_fmadd_ps(value, g[v], sum[r][v]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 16
    for (int v = 0; v < V; ++v) {
      float* to = sums + r * stride + v * kLanes;
      _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), sum[r][v]));
    }
}

// Adds to sums[0..V*16), over all pixels, dy.
template <int V> [[gnu::target("avx512f")]] void add_bias(const PixelRows& b, int64_t dy_at, float* sums) {
  __m512 sum[V];
#pragma GCC unroll 16
  for (int v = 0; v < V; ++v) sum[v] = _mm512_setzero_ps();
  for (int64_t i = 0; i < b.rows; ++i) {
    const float* dy = b.dy[i] + dy_at;
    for (int64_t q = 0; q < b.pixels; ++q, dy += b.dy_step)
#pragma GCC unroll 16
      for (int v = 0; v < V; ++v) sum[v] = _mm512_add_ps(sum[v], _mm512_loadu_ps(dy + v * kLanes));
  }
#pragma GCC unroll 16
  for (int v = 0; v < V; ++v)
    _mm512_storeu_ps(sums + v * kLanes, _mm512_add_ps(_mm512_loadu_ps(sums + v * kLanes), sum[v]));
}

using TileFunction = void (*)(const PixelRows&, int64_t, int64_t, float*, int64_t);
using BiasFunction = void (*)(const PixelRows&, int64_t, float*);

// Tiles of V vectors by 1 to kMost columns. kMost is what the 32 registers hold beside V of dy
// and a broadcast.
template <int V> struct Tiles {
  static constexpr int kMost = V == 4 ? 6 : 12;
  template <size_t... R> static constexpr std::array<TileFunction, kMost> make(std::index_sequence<R...>) {
    return {&add_tile<V, int(R) + 1>...};
  }
  static constexpr std::array<TileFunction, kMost> functions = make(std::make_index_sequence<kMost>());
};

// One tile's place: filters [o, o + 16 V), columns [column, column + count) of filter row kh.
struct Tile {
  TileFunction add;
  BiasFunction add_bias;  // null except for one tile of each range of filters
  int64_t o, kh, column;
};

// Appends tiles of V vectors for the filters from `o`. The columns are cut as evenly as possible.
template <int V>
void cut_columns(int64_t o, int64_t KH, int64_t columns, bool with_bias, std::vector<Tile>& tiles) {
  const int64_t parts = (columns + Tiles<V>::kMost - 1) / Tiles<V>::kMost;
  for (int64_t kh = 0; kh < KH; ++kh)
    for (int64_t i = 0; i < parts; ++i) {
      const int64_t first = columns * i / parts, count = columns * (i + 1) / parts - first;
      tiles.push_back(
          {Tiles<V>::functions[count - 1], with_bias && kh + i == 0 ? &add_bias<V> : nullptr, o, kh, first});
    }
}

std::vector<Tile> cut_tiles(int64_t O, int64_t KH, int64_t columns, bool with_bias) {
  std::vector<Tile> tiles;
  int64_t o = 0;
  for (; O - o >= 4 * kLanes; o += 4 * kLanes) cut_columns<4>(o, KH, columns, with_bias, tiles);
  for (; O - o >= 2 * kLanes; o += 2 * kLanes) cut_columns<2>(o, KH, columns, with_bias, tiles);
  for (; o < O; o += kLanes) cut_columns<1>(o, KH, columns, with_bias, tiles);
  return tiles;
}

}  // namespace

bool has_fast_weight_grad(const Tensor& dw, const raw::ConvGeometry& o) {
  return cpu::has_avx512() && dw.dtype() == DType::kF32 && o.rank() == 2 && o.groups == 1 &&
         dw.size(0) % kLanes == 0 && (o.dilation[1] == 1 || dw.size(3) == 1);
}

void fast_weight_grad(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                      const raw::ConvGeometry& o) {
  const int64_t N = x.size(0), C = x.size(1), H = x.size(2), W = x.size(3);
  const int64_t O = dw.size(0), KH = dw.size(2), KW = dw.size(3), P = dy.size(2), Q = dy.size(3);
  const int64_t columns = KW * C;
  const bool padded = o.padding[0] > 0 || o.padding[1] > 0;
  const int64_t width = W + 2 * o.padding[1];  // of a padded row

  // Rows of output pixels in a block. With large sums, which leave the second-level cache, blocks are larger.
  const int64_t pixels = KH * columns * O <= (1 << 18) ? 96 : 512;
  const int64_t block = std::clamp<int64_t>(pixels / Q, 1, 64);
  Tensor sums = empty({KH * columns, O}, {DType::kF32});
  std::memset(sums.ptr<float>(), 0, sums.nbytes());
  if (db.defined()) std::memset(db.ptr<float>(), 0, db.nbytes());
  const std::vector<Tile> tiles = cut_tiles(O, KH, columns, db.defined());

  parallel_for(0, int64_t(tiles.size()), 1, [&](int64_t first, int64_t last) {
    std::vector<float> copy(padded ? block * KH * width * C : 0);  // its margins stay zero
    std::vector<const float*> dy_rows(block), x_rows(block * KH);  // x_rows[kh][i]
    for (int64_t at = 0; at < N * P; at += block) {
      const int64_t rows = std::min(block, N * P - at);
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t n = (at + i) / P, p = (at + i) % P;
        dy_rows[i] = dy.ptr<float>() + (at + i) * Q * O;
        for (int64_t kh = 0; kh < KH; ++kh) {
          const int64_t h = p * o.stride[0] - o.padding[0] + kh * o.dilation[0];
          const bool inside = h >= 0 && h < H;
          const float* row = inside ? x.ptr<float>() + (n * H + h) * W * C : nullptr;
          if (padded) {  // copies the row between zeros
            float* to = copy.data() + (i * KH + kh) * width * C;
            if (inside)
              std::memcpy(to + o.padding[1] * C, row, W * C * sizeof(float));
            else
              std::memset(to + o.padding[1] * C, 0, W * C * sizeof(float));
            row = to;
          }
          x_rows[kh * block + i] = row;
        }
      }
      for (int64_t t = first; t < last; ++t) {
        const Tile& tile = tiles[t];
        const PixelRows pixels{dy_rows.data(), x_rows.data() + tile.kh * block, rows, Q, O, o.stride[1] * C};
        tile.add(pixels, tile.o, tile.column,
                 sums.ptr<float>() + (tile.kh * columns + tile.column) * O + tile.o, O);
        if (tile.add_bias) tile.add_bias(pixels, tile.o, db.ptr<float>() + tile.o);
      }
    }
  });

  // sums[kh, kw, c, o] -> dw[o, c, kh, kw]
  parallel_for(0, O, 1 + 16384 / (KH * columns), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      for (int64_t k = 0; k < KH * KW; ++k)
        for (int64_t c = 0; c < C; ++c)
          dw.ptr<float>()[(i * C + c) * KH * KW + k] = sums.ptr<float>()[(k * C + c) * O + i];
  });
}

}  // namespace gradus
