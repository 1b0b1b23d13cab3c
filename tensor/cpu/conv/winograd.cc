// Winograd convolution F(2x2, 3x3) and its input and weight gradients: one group, 3x3 filters, stride and
// dilation 1, padding up to 2, input and output channels divisible by kPanel, channels-last images in f32 or
// (without AVX512_BF16) bf16, f32 sums (Lavin and Gray, CVPR 2016). Compiled per instruction set. The
// transforms are here, the matrix products and the division among threads in tiles-inl.h and products-inl.h.
// conv.cc calls a kernel only if its is_profitable has returned true for the problem.
#include "gradus/tensor/cpu/conv/kernels.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/conv/winograd.cc"
#include "gradus/tensor/cpu/levels.h"

#include <hwy/foreach_target.h>

#include "gradus/tensor/cpu/conv/tiles-inl.h"
#include "gradus/tensor/cpu/transpose-inl.h"

// Note [Winograd]
// A tile is 2x2 adjacent output pixels, which depend on 4x4 input pixels. ' is the transpose. With the matrices
//
//        1  0 -1  0          1    0    0
//   B' = 0  1  1  0     G = 1/2  1/2  1/2     A' = 1  1  1  0
//        0 -1  1  0         1/2 -1/2  1/2          0  1 -1 -1
//        0  1  0 -1          0    0    1
//
//   y = A' [(G w G') * (B' x B)] A
// summed over input channels, where * multiplies element by element. This takes 16 multiplications for 4
// results instead of 36. Each of the 16 elements of a transformed tile is called a plane; the sum over
// channels is one matrix product per plane: [tiles, C] by [C, O]. The gradient of x is a convolution of dy
// with filters rotated by 180 degrees and with input and output channels exchanged. The gradient of w is
//   dw = G' [(A dy A') * (B' x B)] G
// summed over tiles: per plane [O, tiles] by [tiles, C].
//
// All factors are 0, 1 or 1/2 in absolute value, and a sum has a ninth of the terms of direct convolution, so
// rounding errors are of the same size (tests/ops/conv_test.cc bounds them). A pixel that is not finite makes
// all of its tile NaN.
//
// In the weight gradient each thread sums over its own tiles, unless there are many sums (PositionSums), so
// the result depends on the number of threads.

HWY_BEFORE_NAMESPACE();
namespace gradus::cpu::HWY_NAMESPACE {
namespace {

using raw::ConvGeometry;

constexpr int kPlanes = 16;

// to[plane i][c..] = (B' d B)[i] of 4x4 pixels d, for channels [c, c + kLanes). pixels[4 * row + column]
// points to a pixel's channels (zeros for padding); `plane` is the stride between planes. T: float or bf16.
template <class T>
HWY_INLINE void transform_input(const T* const* pixels, int64_t c, float* to, int64_t plane) {
  Floats t[4][4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const Floats d0 = load(pixels[j] + c), d1 = load(pixels[4 + j] + c), d2 = load(pixels[8 + j] + c),
                 d3 = load(pixels[12 + j] + c);
    t[0][j] = d0 - d2, t[1][j] = d1 + d2;
    t[2][j] = d2 - d1, t[3][j] = d1 - d3;
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    store(to + (4 * i + 0) * plane, t[i][0] - t[i][2]);
    store(to + (4 * i + 1) * plane, t[i][1] + t[i][2]);
    store(to + (4 * i + 2) * plane, t[i][2] - t[i][1]);
    store(to + (4 * i + 3) * plane, t[i][1] - t[i][3]);
  }
}

// to[plane i][c..] = (A dy A')[i] of 2x2 pixels dy, for channels [c, c + kLanes). Arguments as transform_input.
template <class T>
HWY_INLINE void transform_result_grad(const T* const* pixels, int64_t c, float* to, int64_t plane) {
  Floats t[4][2];
#pragma GCC unroll 2
  for (int j = 0; j < 2; ++j) {
    const Floats d0 = load(pixels[j] + c), d1 = load(pixels[2 + j] + c);
    t[0][j] = d0, t[1][j] = d0 + d1;
    t[2][j] = d0 - d1, t[3][j] = hn::Zero(kFloats) - d1;
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    store(to + (4 * i + 0) * plane, t[i][0]);
    store(to + (4 * i + 1) * plane, t[i][0] + t[i][1]);
    store(to + (4 * i + 2) * plane, t[i][0] - t[i][1]);
    store(to + (4 * i + 3) * plane, hn::Zero(kFloats) - t[i][1]);
  }
}

// Returns A' m A of the planes m, for kLanes channels.
HWY_INLINE OutputTile transform_result(const float* from, int64_t plane) {
  Floats t[2][4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const Floats m0 = load(from + j * plane), m1 = load(from + (4 + j) * plane),
                 m2 = load(from + (8 + j) * plane), m3 = load(from + (12 + j) * plane);
    t[0][j] = m0 + (m1 + m2);
    t[1][j] = m1 - m2 - m3;
  }
  OutputTile y;
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    y.pixels[i][0] = t[i][0] + (t[i][1] + t[i][2]);
    y.pixels[i][1] = t[i][1] - t[i][2] - t[i][3];
  }
  return y;
}

// Transforms tiles [first, last) of the padded images x into the planes v, from index first - base on.
template <class T, class P>
void inputs_to_planes(const Image<T>& x, const Tiles& tiles, const ConvGeometry& g, int64_t first,
                      int64_t last, int64_t base, const P& v) {
  pixels_to_planes<4, transform_input<T>>(x, tiles, -g.padding[0], -g.padding[1], first, last, base, v);
}

// ---- filters ----

constexpr int kTaps = 9;
constexpr int kFiltersAhead = 8;  // prefetch distance

// The filters of a convolution from K channels to N: element (k, n, tap) is at k * k_step + n * n_step + tap.
struct Filters {
  const float* data;
  int64_t K, N, k_step, n_step;
  bool rotated;  // rotated by 180 degrees
};

// to[plane][n / kPanel][k][n % kPanel] = G w G', for work items [first, last) of TileProducts::fill_filters:
// item i is input channel k = i % K of the kLanes filters from n = i / K * kLanes on.
template <bool kRotated> void transform_filters(const Filters& f, int64_t first, int64_t last, float* to) {
  const Floats half = hn::Set(kFloats, 0.5f);
  for (int64_t i = first; i < last; ++i) {
    const int64_t n = i / f.K * kLanes, k = i % f.K;
    const float* from = f.data + k * f.k_step + n * f.n_step;
#pragma GCC unroll 16
    for (int l = 0; l < kLanes; ++l) __builtin_prefetch(from + l * f.n_step + kFiltersAhead * f.k_step);
    Floats taps[kTaps];
    load_columns(from, f.n_step, kTaps, taps);
    Floats t[4][3];
#pragma GCC unroll 3
    for (int j = 0; j < 3; ++j) {
      const Floats w0 = taps[kRotated ? 8 - j : j], w1 = taps[kRotated ? 5 - j : 3 + j],
                   w2 = taps[kRotated ? 2 - j : 6 + j];
      const Floats outer = (w0 + w2) * half, middle = w1 * half;
      t[0][j] = w0, t[1][j] = outer + middle;
      t[2][j] = outer - middle, t[3][j] = w2;
    }
    float* out = to + (n / kPanel * f.K + k) * kPanel + n % kPanel;
    const int64_t plane = filter_plane_stride(f.K, f.N);
#pragma GCC unroll 4
    for (int h = 0; h < 4; ++h) {
      const Floats outer = (t[h][0] + t[h][2]) * half, middle = t[h][1] * half;
      store(out + (4 * h + 0) * plane, t[h][0]);
      store(out + (4 * h + 1) * plane, outer + middle);
      store(out + (4 * h + 2) * plane, outer - middle);
      store(out + (4 * h + 3) * plane, t[h][2]);
    }
  }
}

// dw[c] = G' u[c] G for the C channels of one filter, where u are planes with stride `plane`.
void filter_grads(const float* u, int64_t plane, int64_t C, float* dw) {
  const Floats half = hn::Set(kFloats, 0.5f);
  for (int64_t c = 0; c < C; c += kLanes) {
    const float* from = u + c;
    Floats t[3][4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const Floats u0 = load(from + j * plane), u1 = load(from + (4 + j) * plane),
                   u2 = load(from + (8 + j) * plane), u3 = load(from + (12 + j) * plane);
      const Floats sum = (u1 + u2) * half;
      t[0][j] = u0 + sum, t[2][j] = sum + u3;
      t[1][j] = (u1 - u2) * half;
    }
    Floats taps[kTaps];
#pragma GCC unroll 3
    for (int i = 0; i < 3; ++i) {
      const Floats sum = (t[i][1] + t[i][2]) * half;
      taps[3 * i] = t[i][0] + sum, taps[3 * i + 2] = sum + t[i][3];
      taps[3 * i + 1] = (t[i][1] - t[i][2]) * half;
    }
    store_columns(taps, kTaps, dw + c * kTaps, kTaps);
  }
}

// ---- the three convolutions ----

// result = convolution of input with f, plus bias if not null.
template <class T>
void convolve(const Tensor& result, const Tensor& input, const Filters& f, const float* bias,
              const ConvGeometry& g) {
  const Image<T> y(result), x(input);
  const Tiles tiles(result);
  convolve_by_products(
      {.planes = kPlanes,
       .K = f.K,
       .N = f.N,
       .tiles = tiles.count,
       .input = input,
       .filter_rows = f.K,
       .fill_inputs = [&](int64_t first, int64_t last, int64_t base,
                          const Planes& v) { inputs_to_planes(x, tiles, g, first, last, base, v); },
       .fill_filters =
           [&](int64_t channel, int64_t channels, int64_t first, int64_t last, float* to) {
             const Filters slice{f.data + channel * f.n_step, f.K, channels, f.k_step, f.n_step, f.rotated};
             (f.rotated ? transform_filters<true> : transform_filters<false>)(slice, first, last, to);
           },
       .write_results =
           [&](int64_t first, int64_t last, int64_t base, const Planes& m, int64_t channel,
               int64_t channels) {
             planes_to_results<transform_result>(y, {}, tiles, bias, first, last, base, m, channel, channels);
           }});
}

// Returns whether the problem has the shape of this file's kernels and at least min_tiles tiles.
bool is_supported(const ConvProblem& p, int64_t min_tiles) {
  const ConvGeometry& g = p.geometry;
  if (!supports_winograd(p) || g.rank() != 2) return false;
  for (int d = 0; d < 2; ++d)
    if (p.w.size(d + 2) != 3 || g.stride[d] != 1 || g.dilation[d] != 1 || g.padding[d] > 2) return false;
  return Tiles(p.y).count >= min_tiles;
}
bool is_profitable(const ConvProblem& p) {
  return is_supported(
      p, std::max<int64_t>(128, p.w.size(0) * p.w.size(1) / 4096));  // enough for the filters' transforms
}
bool is_profitable_for_weights(const ConvProblem& p) { return is_supported(p, 128); }

void forward(const ConvProblem& p) {
  const Tensor w = as_f32(p.w), bias = as_f32(p.bias);
  const int64_t O = w.size(0), C = w.size(1);
  dispatch_image_type(p.x, [&]<class T>(T) {
    convolve<T>(p.y, p.x, {w.ptr<float>(), C, O, 9, 9 * C, false},
                bias.defined() ? bias.ptr<float>() : nullptr, p.geometry);
  });
}

void input_grad(const ConvProblem& p) {
  const Tensor w = as_f32(p.w);
  const int64_t O = w.size(0), C = w.size(1);
  ConvGeometry g = p.geometry;
  for (int d = 0; d < 2; ++d) g.padding[d] = 2 - g.padding[d];
  dispatch_image_type(p.y, [&]<class T>(T) {
    convolve<T>(p.x, p.y, {w.ptr<float>(), O, C, 9 * C, 9, true}, nullptr, g);
  });
}

template <class T>
void weight_grad(const Tensor& dw, const Tensor& dy, const Tensor& x, const ConvGeometry& g) {
  const Image<T> in(x), grad(dy);
  const Tiles tiles(dy);
  const auto fill = [&](int64_t first, int64_t last, int64_t base, const Operands& d, const Operands& v) {
    inputs_to_planes(in, tiles, g, first, last, base, v);
    pixels_to_planes<2, transform_result_grad<T>>(grad, tiles, 0, 0, first, last, base, d);
  };
  weight_grad_by_tiles<kPlanes, 1, kTaps, filter_grads>(dw, dy, x, fill);
}

void weight_grad(const ConvProblem& p) {
  compute_in_f32(p.w, [&](const Tensor& dw) {
    dispatch_image_type(p.x, [&]<class T>(T) { weight_grad<T>(dw, p.y, p.x, p.geometry); });
  });
}

constexpr ConvKernels kWinograd = {{"winograd", is_profitable, forward},
                                   {"winograd", is_profitable, input_grad},
                                   {"winograd", is_profitable_for_weights, weight_grad}};

}  // namespace
}  // namespace gradus::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
const gradus::ConvKernels& gradus::winograd_kernels() { return *GRADUS_DISPATCH(kWinograd); }
#endif
