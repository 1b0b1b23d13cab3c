#include "gradus/tensor/cpu/conv/winograd_halving.h"

#include <immintrin.h>

#include "gradus/tensor/cpu/conv/products.h"
#include "gradus/tensor/cpu/conv/tiles.h"
#include "gradus/tensor/cpu/register_transpose.h"
#include "gradus/tensor/runtime/processor.h"

// Note [Winograd, halving]
// With a padding of 1, y[i] = sum over k = 0..3 of x[2i + k - 1] w[k], in each direction. The even k see only
// odd pixels of x, and the odd k even ones. So y is the sum of four convolutions at a stride of 1, of an
// image of every other pixel by 2x2 filters. They are its parts. With the matrices
//
//        1 -1  0         1  0          1  1  0
//   B' = 0  1  0     G = 1  1     A' = 0  1  1 = G'
//        0 -1  1         0  1
//
// a tile of 2x2 pixels is y = A' [(G w G') * (B' x B)] A, summed over the parts and their channels, where x
// are the 3x3 pixels of the part that it depends on. So a tile of y depends on 6x6 pixels of x. It has 9
// planes, with a matrix product each: [tiles, 4 C] by [4 C, O]. This takes 36 products for 4 results, where
// the definition takes 64.
//
// The gradient of x has parts too, of every other pixel: pixel h = 2i of x is in y[i-1] by w[3] and in y[i]
// by w[1]; pixel h = 2i + 1 is in y[i] by w[2] and in y[i+1] by w[0]. So a part is a convolution of dy, from
// one pixel before the tile or from its first. The parts are computed one after the other, each with 9
// planes: [tiles, O] by [O, C]. The gradient of w is G' [(A dy A') * (B' x B)] G, summed over tiles: per
// plane [O, tiles] by [tiles, 4 C].
//
// All factors are 0 and 1 in absolute value, so rounding errors are of the definition's size
// (tests/ops/conv_test.cc bounds them). A pixel that is not finite makes all of its tile NaN.
//
// In the weight gradient each thread sums over its own tiles, so the result depends on the number of threads.

namespace gradus {
namespace {

using cpu::Image, cpu::Tiles;
using cpu::kLanes, cpu::kPanel, cpu::Planes;
using raw::ConvGeometry;

constexpr int kPlanes = 9;  // of a part
constexpr int kParts = 4;   // by row, then by column

#define GRADUS_AVX512 gnu::target("avx512f")

// ---- one part's transforms, of 16 channels ----

// Writes B' d B to the planes.
[[GRADUS_AVX512, gnu::always_inline]] inline void transform_input(const __m512 d[3][3], float* to,
                                                                  int64_t plane) {
  __m512 t[3][3];
#pragma GCC unroll 3
  for (int j = 0; j < 3; ++j)
    t[0][j] = _mm512_sub_ps(d[0][j], d[1][j]), t[1][j] = d[1][j], t[2][j] = _mm512_sub_ps(d[2][j], d[1][j]);
#pragma GCC unroll 3
  for (int i = 0; i < 3; ++i) {
    _mm512_storeu_ps(to + (3 * i + 0) * plane, _mm512_sub_ps(t[i][0], t[i][1]));
    _mm512_storeu_ps(to + (3 * i + 1) * plane, t[i][1]);
    _mm512_storeu_ps(to + (3 * i + 2) * plane, _mm512_sub_ps(t[i][2], t[i][1]));
  }
}

// Writes G g G' to the planes.
[[GRADUS_AVX512, gnu::always_inline]] inline void expand(__m512 g00, __m512 g01, __m512 g10, __m512 g11,
                                                         float* to, int64_t plane) {
  const __m512 t[3][2] = {{g00, g01}, {_mm512_add_ps(g00, g10), _mm512_add_ps(g01, g11)}, {g10, g11}};
#pragma GCC unroll 3
  for (int i = 0; i < 3; ++i) {
    _mm512_storeu_ps(to + (3 * i + 0) * plane, t[i][0]);
    _mm512_storeu_ps(to + (3 * i + 1) * plane, _mm512_add_ps(t[i][0], t[i][1]));
    _mm512_storeu_ps(to + (3 * i + 2) * plane, t[i][1]);
  }
}

// Computes G' m G of the planes.
struct Square {
  __m512 at[2][2];
};
[[GRADUS_AVX512, gnu::always_inline]] inline Square contract(const float* from, int64_t plane) {
  __m512 t[2][3];
#pragma GCC unroll 3
  for (int j = 0; j < 3; ++j) {
    const __m512 m0 = _mm512_loadu_ps(from + j * plane), m1 = _mm512_loadu_ps(from + (3 + j) * plane),
                 m2 = _mm512_loadu_ps(from + (6 + j) * plane);
    t[0][j] = _mm512_add_ps(m0, m1), t[1][j] = _mm512_add_ps(m1, m2);
  }
  Square y;
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i)
    y.at[i][0] = _mm512_add_ps(t[i][0], t[i][1]), y.at[i][1] = _mm512_add_ps(t[i][1], t[i][2]);
  return y;
}

// ---- tiles to planes and back ----

// Transforms tiles [first, last) of x: its parts lie side by side, as 4 C channels.
[[GRADUS_AVX512]] void inputs_to_planes(const Image& x, const Tiles& tiles, int64_t first, int64_t last,
                                        int64_t base, const Planes& v) {
  const float* pixels[6][6];
  for (int64_t t = first; t < last; ++t) {
    const auto [n, row, column] = place_of(tiles, t);
    const int64_t h = 4 * row - 1, w = 4 * column - 1;
    for (int i = 0; i < 6; ++i)
      for (int j = 0; j < 6; ++j) pixels[i][j] = x.at(n, h + i, w + j);
    for (int part = 0; part < kParts; ++part)
      for (int64_t c = 0; c < x.channels(); c += kLanes) {
        __m512 d[3][3];
#pragma GCC unroll 3
        for (int i = 0; i < 3; ++i)
#pragma GCC unroll 3
          for (int j = 0; j < 3; ++j)
            d[i][j] = _mm512_loadu_ps(pixels[2 * i + part / 2][2 * j + part % 2] + c);
        transform_input(d, v.at(0, t - base) + part * x.channels() + c, v.plane);
      }
  }
}

// The same for a part of the gradient of x.
[[GRADUS_AVX512]] void grads_to_planes(const Image& dy, int part, const Tiles& tiles, int64_t first,
                                       int64_t last, int64_t base, const Planes& v) {
  const float* pixels[3][3];
  for (int64_t t = first; t < last; ++t) {
    const auto [n, row, column] = place_of(tiles, t);
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 3; ++j)
        pixels[i][j] = dy.at(n, 2 * row - 1 + part / 2 + i, 2 * column - 1 + part % 2 + j);
    for (int64_t c = 0; c < dy.channels(); c += kLanes) {
      __m512 d[3][3];
#pragma GCC unroll 3
      for (int i = 0; i < 3; ++i)
#pragma GCC unroll 3
        for (int j = 0; j < 3; ++j) d[i][j] = _mm512_loadu_ps(pixels[i][j] + c);
      transform_input(d, v.at(0, t - base) + c, v.plane);
    }
  }
}

// Computes A dy A' for the gradient of w.
[[GRADUS_AVX512]] void results_to_planes(const Image& dy, const Tiles& tiles, int64_t first, int64_t last,
                                         int64_t base, const Planes& d) {
  for (int64_t t = first; t < last; ++t) {
    const auto [n, row, column] = place_of(tiles, t);
    const float* pixels[4];
    for (int i = 0; i < 4; ++i) pixels[i] = dy.at(n, 2 * row + i / 2, 2 * column + i % 2);
    for (int64_t c = 0; c < dy.channels(); c += kLanes)
      expand(_mm512_loadu_ps(pixels[0] + c), _mm512_loadu_ps(pixels[1] + c), _mm512_loadu_ps(pixels[2] + c),
             _mm512_loadu_ps(pixels[3] + c), d.at(0, t - base) + c, d.plane);
  }
}

// Which pixels of an image a tile's 2x2 results are: neighbors, or every other one.
struct Places {
  int64_t step = 1, row = 0, column = 0;
};

// Writes the results to y. `m` holds `channels` of its channels from `channel`.
[[GRADUS_AVX512]] void planes_to_results(const Image& y, const Places& at, const Tiles& tiles,
                                         const float* bias, int64_t first, int64_t last, int64_t base,
                                         const Planes& m, int64_t channel, int64_t channels) {
  float* pixels[4];
  for (int64_t t = first; t < last; ++t) {
    const auto [n, row, column] = place_of(tiles, t);
    for (int i = 0; i < 4; ++i)
      pixels[i] =
          y.pixel(n, at.step * (2 * row + i / 2) + at.row, at.step * (2 * column + i % 2) + at.column);
    for (int64_t i = 0; i < channels; i += kLanes) {
      const Square s = contract(m.at(0, t - base) + i, m.plane);
      const __m512 b = bias ? _mm512_loadu_ps(bias + channel + i) : _mm512_setzero_ps();
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k)
        if (pixels[k]) _mm512_storeu_ps(pixels[k] + channel + i, _mm512_add_ps(s.at[k / 2][k % 2], b));
    }
  }
}

// ---- filters w[O][C][4][4] ----

// Reads 16 filters, at a distance of `step`, as vectors by tap.
[[GRADUS_AVX512, gnu::always_inline]] inline void load_taps(const float* from, int64_t step, __m512* taps) {
  __m512 filters[16];
#pragma GCC unroll 16
  for (int l = 0; l < kLanes; ++l) filters[l] = _mm512_loadu_ps(from + l * step);
  cpu::transpose(filters, taps);
}

// For y. Step i has filters of 16 results and input channel i % C.
[[GRADUS_AVX512]] void filters_to_panels(const Tensor& w, int64_t channel, int64_t channels, int64_t first,
                                         int64_t last, float* to) {
  const int64_t C = w.size(1), plane = cpu::plane_of_filters(kParts * C, channels);
  for (int64_t i = first; i < last; ++i) {
    const int64_t n = i / C * kLanes, c = i % C;
    __m512 taps[16];
    load_taps(w.ptr<float>() + ((channel + n) * C + c) * 16, C * 16, taps);
    for (int part = 0; part < kParts; ++part) {
      const __m512* g = taps + part / 2 * 4 + part % 2;
      expand(g[0], g[2], g[8], g[10], to + (n / kPanel * kParts * C + part * C + c) * kPanel + n % kPanel,
             plane);
    }
  }
}

// For a part of the gradient of x. Step i has filters of 16 of its channels and channel i % O of dy.
[[GRADUS_AVX512]] void turned_filters_to_panels(const Tensor& w, int part, int64_t channel, int64_t channels,
                                                int64_t first, int64_t last, float* to) {
  const int64_t O = w.size(0), C = w.size(1), plane = cpu::plane_of_filters(O, channels);
  for (int64_t i = first; i < last; ++i) {
    const int64_t n = i / O * kLanes, o = i % O;
    __m512 taps[16];
    load_taps(w.ptr<float>() + (o * C + channel + n) * 16, 16, taps);
    const __m512* g = taps + (1 - part / 2) * 4 + 1 - part % 2;
    expand(g[10], g[8], g[2], g[0], to + (n / kPanel * O + o) * kPanel + n % kPanel, plane);
  }
}

// Writes dw[c] = G' u G for one filter of y, where u[4 C] are the planes.
[[GRADUS_AVX512]] void filter_grads(const float* u, int64_t plane, int64_t C, float* dw) {
  for (int64_t c = 0; c < C; c += kLanes) {
    __m512 taps[16], filters[16];
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
      const Square g = contract(u + part * C + c, plane);
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k)
        taps[(k / 2 * 2 + part / 2) * 4 + k % 2 * 2 + part % 2] = g.at[k / 2][k % 2];
    }
    cpu::transpose(taps, filters);
#pragma GCC unroll 16
    for (int l = 0; l < kLanes; ++l) _mm512_storeu_ps(dw + (c + l) * 16, filters[l]);
  }
}

bool serves(const Tensor& x, const Tensor& y, const Shape& w, const ConvGeometry& g, int64_t least_tiles) {
  if (!cpu::has_avx512() || x.dtype() != DType::kF32 || y.dtype() != DType::kF32 || g.rank() != 2 ||
      g.groups != 1)
    return false;
  for (int d = 0; d < 2; ++d)
    if (w[d + 2] != 4 || g.stride[d] != 2 || g.dilation[d] != 1 || g.padding[d] != 1 ||
        x.size(d + 2) != 2 * y.size(d + 2))
      return false;
  return w[0] % kPanel == 0 && w[1] % kPanel == 0 && w.product() < (int64_t{1} << 30) &&
         Tiles(y).count >= least_tiles;
}

}  // namespace

// From so many tiles on the products take less time, although filters are transformed first.
bool prefers_winograd_halving(const Tensor& x, const Tensor& y, const Shape& w, const ConvGeometry& g) {
  return serves(x, y, w, g, 64);
}
bool prefers_winograd_halving_grad(const Tensor& x, const Tensor& y, const Shape& w, const ConvGeometry& g) {
  return serves(x, y, w, g, 128);
}
bool prefers_winograd_halving_weight_grad(const Tensor& x, const Tensor& y, const Shape& w,
                                          const ConvGeometry& g) {
  return serves(x, y, w, g, 64);
}

void winograd_halving(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias) {
  const Image result(y), input(x);
  const Tiles tiles(y);
  const float* b = bias.defined() ? bias.ptr<float>() : nullptr;
  cpu::convolve_by_products(
      {.planes = kPlanes,
       .K = kParts * w.size(1),
       .N = w.size(0),
       .tiles = tiles.count,
       .input = x,
       .filter_rows = w.size(1),
       .fill_inputs = [&](int64_t first, int64_t last, int64_t base,
                          const Planes& v) { inputs_to_planes(input, tiles, first, last, base, v); },
       .fill_filters = [&](int64_t channel, int64_t channels, int64_t first, int64_t last,
                           float* to) { filters_to_panels(w, channel, channels, first, last, to); },
       .write_results =
           [&](int64_t first, int64_t last, int64_t base, const Planes& m, int64_t channel,
               int64_t channels) {
             planes_to_results(result, {}, tiles, b, first, last, base, m, channel, channels);
           }});
}

void winograd_halving_grad(const Tensor& dx, const Tensor& dy, const Tensor& w) {
  const Image result(dx), input(dy);
  const Tiles tiles(dy);
  for (int part = 0; part < kParts; ++part)
    cpu::convolve_by_products(
        {.planes = kPlanes,
         .K = w.size(0),
         .N = w.size(1),
         .tiles = tiles.count,
         .input = dy,
         .filter_rows = w.size(0),
         .fill_inputs = [&](int64_t first, int64_t last, int64_t base,
                            const Planes& v) { grads_to_planes(input, part, tiles, first, last, base, v); },
         .fill_filters =
             [&](int64_t channel, int64_t channels, int64_t first, int64_t last, float* to) {
               turned_filters_to_panels(w, part, channel, channels, first, last, to);
             },
         .write_results =
             [&](int64_t first, int64_t last, int64_t base, const Planes& m, int64_t channel,
                 int64_t channels) {
               planes_to_results(result, {2, part / 2, part % 2}, tiles, nullptr, first, last, base, m,
                                 channel, channels);
             }});
}

void winograd_halving_weight_grad(const Tensor& dw, const Tensor& dy, const Tensor& x) {
  const int64_t O = dw.size(0), C = dw.size(1);
  const Image in(x), grad(dy);
  const Tiles tiles(dy);
  const auto fill = [&](int64_t first, int64_t last, int64_t base, const Planes& d, const Planes& v) {
    inputs_to_planes(in, tiles, first, last, base, v);
    results_to_planes(grad, tiles, first, last, base, d);
  };
  const auto sums = cpu::PositionSums{.planes = kPlanes,
                                      .O = O,
                                      .C = kParts * C,
                                      .dy = dy,
                                      .x = x,
                                      .positions = tiles.count,
                                      .at_once = 392}
                        .of(fill);
  parallel_for(0, O, 1 + 1024 / C, [&](int64_t first, int64_t last) {
    for (int64_t o = first; o < last; ++o) {
      for (int64_t p = 0; p < kPlanes; ++p) sums.total(p, o, kParts * C);
      filter_grads(sums.planes.at(0, o), sums.planes.plane, C, dw.ptr<float>() + o * C * 16);
    }
  });
}

}  // namespace gradus
