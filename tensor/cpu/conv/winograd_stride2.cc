// Winograd convolution F(2x2, 2x2) for 4x4 filters with stride 2 and padding 1, and its gradients, compiled per
// instruction set by Highway. Images x [N, C, H, W] and y [N, O, H/2, W/2] are channels-last, f32 or (without
// AVX512_BF16) bf16; there is one group, and C and O are divisible by kPanel; transforms and sums are f32.
// The transforms are here, the matrix products in tiles-inl.h and products-inl.h. conv.cc calls a kernel only
// if its is_profitable has returned true for the problem.
#include "gradus/tensor/cpu/conv/kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/conv/winograd_stride2.cc"
#include "gradus/tensor/cpu/levels.h"

#include <hwy/foreach_target.h>

#include "gradus/tensor/cpu/conv/tiles-inl.h"
#include "gradus/tensor/cpu/transpose-inl.h"

// Note [Winograd, stride 2]
// With a padding of 1, y[i] = sum over k = 0..3 of x[2i + k - 1] * w[k] along each axis. Even k read only odd
// pixels of x, odd k only even pixels. So y is the sum of four convolutions with stride 1, called parts, each
// of every other pixel of x along both axes with a 2x2 filter. ' is the transpose. With the matrices
//
//        1 -1  0         1  0          1  1  0
//   B' = 0  1  0     G = 1  1     A' = 0  1  1 = G'
//        0 -1  1         0  1
//
// a tile of 2x2 output pixels is
//   y = A' [(G w G') * (B' x B)] A
// summed over the parts and their channels, where x are the 3x3 pixels of the part on which the tile depends. So a
// tile depends on 6x6 pixels of x. Each of the 9 elements of a transformed tile is called a plane and has one
// matrix product: [tiles, 4 C] by [4 C, O]. This takes 36 multiplications for 4 results instead of 64.
//
// The gradient of x has four parts of every other pixel too: pixel 2i of x contributes to y[i-1] with w[3]
// and to y[i] with w[1], pixel 2i + 1 to y[i] with w[2] and to y[i+1] with w[0]. So a part is a convolution
// of dy with 2x2 filters. The parts are computed one after another, each with 9 planes: [tiles, O] by [O, C].
// The gradient of w is
//   dw = G' [(A dy A') * (B' x B)] G
// summed over tiles: per plane [O, tiles] by [tiles, 4 C].
//
// All factors are 0 or 1 in absolute value, so rounding errors are of the size of those of direct convolution
// (tests/ops/conv_test.cc bounds them). A pixel that is not finite makes all of its tile NaN.
//
// In the weight gradient each thread sums over its own tiles, unless there are many sums (PositionSums), so
// the result depends on the number of threads.

HWY_BEFORE_NAMESPACE();
namespace gradus::cpu::HWY_NAMESPACE {
namespace {

using raw::ConvGeometry;

constexpr int kPlanes = 9;  // elements of a transformed 3x3 tile
constexpr int kParts = 4;   // part p: pixels of row parity p / 2 and column parity p % 2
constexpr int kTaps = 16;   // weights of a 4x4 filter

// ---- transforms of one part, for kLanes channels ----

// to[plane i] = (B' d B)[i].
HWY_INLINE void transform_input(const Floats d[3][3], float* to, int64_t plane) {
  Floats t[3][3];
#pragma GCC unroll 3
  for (int j = 0; j < 3; ++j) t[0][j] = d[0][j] - d[1][j], t[1][j] = d[1][j], t[2][j] = d[2][j] - d[1][j];
#pragma GCC unroll 3
  for (int i = 0; i < 3; ++i) {
    store(to + (3 * i + 0) * plane, t[i][0] - t[i][1]);
    store(to + (3 * i + 1) * plane, t[i][1]);
    store(to + (3 * i + 2) * plane, t[i][2] - t[i][1]);
  }
}

// to[plane i] = (G g G')[i] of a 2x2 filter g.
HWY_INLINE void expand(Floats g00, Floats g01, Floats g10, Floats g11, float* to, int64_t plane) {
  const Floats t[3][2] = {{g00, g01}, {g00 + g10, g01 + g11}, {g10, g11}};
#pragma GCC unroll 3
  for (int i = 0; i < 3; ++i) {
    store(to + (3 * i + 0) * plane, t[i][0]);
    store(to + (3 * i + 1) * plane, t[i][0] + t[i][1]);
    store(to + (3 * i + 2) * plane, t[i][1]);
  }
}

// The two transforms of a tile of dy, of kLanes channels from channel c on: B' dy B of 3x3 pixels for the
// gradient of x, and A dy A' = G dy G' of 2x2 pixels for the gradient of w.
template <class T>
HWY_INLINE void transform_pixels(const T* const* pixels, int64_t c, float* to, int64_t plane) {
  Floats d[3][3];
#pragma GCC unroll 9
  for (int i = 0; i < 9; ++i) d[i / 3][i % 3] = load(pixels[i] + c);
  transform_input(d, to, plane);
}
template <class T>
HWY_INLINE void expand_pixels(const T* const* pixels, int64_t c, float* to, int64_t plane) {
  expand(load(pixels[0] + c), load(pixels[1] + c), load(pixels[2] + c), load(pixels[3] + c), to, plane);
}

// Returns G' m G = A' m A of the planes m.
HWY_INLINE OutputTile contract(const float* from, int64_t plane) {
  Floats t[2][3];
#pragma GCC unroll 3
  for (int j = 0; j < 3; ++j) {
    const Floats m0 = load(from + j * plane), m1 = load(from + (3 + j) * plane),
                 m2 = load(from + (6 + j) * plane);
    t[0][j] = m0 + m1, t[1][j] = m1 + m2;
  }
  OutputTile y;
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) y.pixels[i][0] = t[i][0] + t[i][1], y.pixels[i][1] = t[i][1] + t[i][2];
  return y;
}

// Transforms tiles [first, last) of x into v. The four parts are consecutive, as 4 C channels.
template <class T, class P>
void inputs_to_planes(const Image<T>& x, const Tiles& tiles, int64_t first, int64_t last, int64_t base,
                      const P& v) {
  const T* pixels[6][6];
  for (int64_t t = first; t < last; ++t) {
    const auto [n, row, column] = tile_position(tiles, t);
    const int64_t h = 4 * row - 1, w = 4 * column - 1;
    for (int i = 0; i < 6; ++i)
      for (int j = 0; j < 6; ++j) pixels[i][j] = x.at(n, h + i, w + j);
    for (int part = 0; part < kParts; ++part)
      for (int64_t c = 0; c < x.channels(); c += kLanes) {
        Floats d[3][3];
#pragma GCC unroll 3
        for (int i = 0; i < 3; ++i)
#pragma GCC unroll 3
          for (int j = 0; j < 3; ++j) d[i][j] = load(pixels[2 * i + part / 2][2 * j + part % 2] + c);
        transform_input(d, v.at(0, t - base, part * x.channels() + c), v.plane_stride);
      }
  }
}

// ---- filters w[O][C][4][4] ----

// The transformed filters of the forward. Work item i (TileProducts::fill_filters) has kLanes output channels
// and input channel i % C.
void filters_to_panels(const Tensor& w, int64_t channel, int64_t channels, int64_t first, int64_t last,
                       float* to) {
  const int64_t C = w.size(1), plane = filter_plane_stride(kParts * C, channels);
  for (int64_t i = first; i < last; ++i) {
    const int64_t n = i / C * kLanes, c = i % C;
    Floats taps[kTaps];
    load_columns(w.ptr<float>() + ((channel + n) * C + c) * kTaps, C * kTaps, kTaps, taps);
    for (int part = 0; part < kParts; ++part) {
      const Floats* g = taps + part / 2 * 4 + part % 2;
      expand(g[0], g[2], g[8], g[10], to + (n / kPanel * kParts * C + part * C + c) * kPanel + n % kPanel,
             plane);
    }
  }
}

// The transformed filters, rotated by 180 degrees, of one part of the gradient of x. Work item i has kLanes
// channels of x and channel i % O of dy.
void rotated_filters_to_panels(const Tensor& w, int part, int64_t channel, int64_t channels, int64_t first,
                               int64_t last, float* to) {
  const int64_t O = w.size(0), C = w.size(1), plane = filter_plane_stride(O, channels);
  for (int64_t i = first; i < last; ++i) {
    const int64_t n = i / O * kLanes, o = i % O;
    Floats taps[kTaps];
    load_columns(w.ptr<float>() + (o * C + channel + n) * kTaps, kTaps, kTaps, taps);
    const Floats* g = taps + (1 - part / 2) * 4 + 1 - part % 2;
    expand(g[10], g[8], g[2], g[0], to + (n / kPanel * O + o) * kPanel + n % kPanel, plane);
  }
}

// dw[c] = G' u G for the C channels of one filter, where u [4 C] are planes with stride `plane`.
void filter_grads(const float* u, int64_t plane, int64_t C, float* dw) {
  for (int64_t c = 0; c < C; c += kLanes) {
    Floats taps[kTaps];
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part) {
      const OutputTile g = contract(u + part * C + c, plane);
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k)
        taps[(k / 2 * 2 + part / 2) * 4 + k % 2 * 2 + part % 2] = g.pixels[k / 2][k % 2];
    }
    store_columns(taps, kTaps, dw + c * kTaps, kTaps);
  }
}

// Returns whether the problem is supported and has enough tiles to make up for the transform of the filters.
template <int64_t kMinTiles> bool is_profitable(const ConvProblem& p) {
  const ConvGeometry& g = p.geometry;
  if (!supports_winograd(p) || g.rank() != 2) return false;
  for (int d = 0; d < 2; ++d)
    if (p.w.size(d + 2) != 4 || g.stride[d] != 2 || g.dilation[d] != 1 || g.padding[d] != 1 ||
        p.x.size(d + 2) != 2 * p.y.size(d + 2))
      return false;
  return Tiles(p.y).count >= kMinTiles;
}

template <class T> void convolve(const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias) {
  const Image<T> result(y), input(x);
  const Tiles tiles(y);
  const float* b = bias.defined() ? bias.ptr<float>() : nullptr;
  convolve_by_products(
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
             planes_to_results<contract>(result, {}, tiles, b, first, last, base, m, channel, channels);
           }});
}

template <class T> void input_grad(const Tensor& dx, const Tensor& dy, const Tensor& w) {
  const Image<T> result(dx), input(dy);
  const Tiles tiles(dy);
  for (int part = 0; part < kParts; ++part)
    convolve_by_products({.planes = kPlanes,
                          .K = w.size(0),
                          .N = w.size(1),
                          .tiles = tiles.count,
                          .input = dy,
                          .filter_rows = w.size(0),
                          .fill_inputs =
                              [&](int64_t first, int64_t last, int64_t base, const Planes& v) {
                                pixels_to_planes<3, transform_pixels<T>>(input, tiles, part / 2 - 1,
                                                                         part % 2 - 1, first, last, base, v);
                              },
                          .fill_filters =
                              [&](int64_t channel, int64_t channels, int64_t first, int64_t last, float* to) {
                                rotated_filters_to_panels(w, part, channel, channels, first, last, to);
                              },
                          .write_results =
                              [&](int64_t first, int64_t last, int64_t base, const Planes& m, int64_t channel,
                                  int64_t channels) {
                                planes_to_results<contract>(result, {2, part / 2, part % 2}, tiles, nullptr,
                                                            first, last, base, m, channel, channels);
                              }});
}

template <class T> void weight_grad(const Tensor& dw, const Tensor& dy, const Tensor& x) {
  const Image<T> in(x), grad(dy);
  const Tiles tiles(dy);
  const auto fill = [&](int64_t first, int64_t last, int64_t base, const Operands& d, const Operands& v) {
    inputs_to_planes(in, tiles, first, last, base, v);
    pixels_to_planes<2, expand_pixels<T>>(grad, tiles, 0, 0, first, last, base, d);
  };
  weight_grad_by_tiles<kPlanes, kParts, kTaps, filter_grads>(dw, dy, x, fill);
}

void forward(const ConvProblem& p) {
  dispatch_image_type(p.x, [&]<class T>(T) { convolve<T>(p.y, p.x, as_f32(p.w), as_f32(p.bias)); });
}
void input_grad(const ConvProblem& p) {
  dispatch_image_type(p.y, [&]<class T>(T) { input_grad<T>(p.x, p.y, as_f32(p.w)); });
}
void weight_grad(const ConvProblem& p) {
  compute_in_f32(p.w, [&](const Tensor& dw) {
    dispatch_image_type(p.x, [&]<class T>(T) { weight_grad<T>(dw, p.y, p.x); });
  });
}

constexpr ConvKernels kStride2 = {{"winograd stride 2", is_profitable<64>, forward},
                                  {"winograd stride 2", is_profitable<128>, input_grad},
                                  {"winograd stride 2", is_profitable<64>, weight_grad}};

}  // namespace
}  // namespace gradus::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
const gradus::ConvKernels& gradus::winograd_stride2_kernels() { return *GRADUS_DISPATCH(kStride2); }
#endif
