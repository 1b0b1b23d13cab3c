#include "gradus/tensor/cpu/conv/sparse_grad.h"

#include <immintrin.h>

#include <bit>
#include <cstring>
#include <vector>

#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/runtime/processor.h"

// Note [Sparse gradients]
// A nonzero dy[n,p,q,o] adds
//   dy * x[n, p*s+kh, (q*s+kw, c)] to dw[o, kh, (kw, c)], and
//   dy * w[o, kh, (kw, c)] to dx[n, p*s+kh, (q*s+kw, c)]
// For each row kh of the filter these are runs of KW*C neighbors in memory on both sides. Vector registers
// hold all KH*KW*C numbers.
//
// dw takes one filter after the other. The filter's sums stay in registers while its nonzeros visit their
// places in the image. dx takes one pixel after the other. The pixel's sums stay in registers while its
// nonzeros visit their filters. Pixels whose window leaves the image are added piece by piece. A zero of dy
// adds nothing, not even where x or w is infinite.
//
// For dw the images are cut into a fixed number of parts. Each part has its own sums, which are added in
// order. So the result does not depend on the number of threads.

namespace gradus {
namespace {

constexpr int kLanes = 16;
constexpr double kMostNonzero = 0.3;
constexpr int64_t kParts = 8;

// The sizes of one convolution.
struct Problem {
  Problem(const Tensor& x, const Tensor& dy, const Shape& w, const raw::ConvGeometry& o)
      : N(x.size(0)),
        C(x.size(1)),
        H(x.size(2)),
        W(x.size(3)),
        O(w[0]),
        KH(w[2]),
        KW(w[3]),
        P(dy.size(2)),
        Q(dy.size(3)),
        o(o) {}
  int64_t taps() const { return KH * KW * C; }

  int64_t N, C, H, W, O, KH, KW, P, Q;
  raw::ConvGeometry o;
};

// to[0..n) += scale * from[0..n)
[[gnu::target("avx512f"), gnu::always_inline]] inline void add_scaled(float* to, const float* from,
                                                                      __m512 scale, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    _mm512_storeu_ps(to + i, _mm512_fmadd_ps(scale, _mm512_loadu_ps(from + i), _mm512_loadu_ps(to + i)));
  if (i == n) return;
  const auto tail = static_cast<__mmask16>((1u << (n - i)) - 1);
  _mm512_mask_storeu_ps(
      to + i, tail,
      _mm512_fmadd_ps(scale, _mm512_maskz_loadu_ps(tail, from + i), _mm512_maskz_loadu_ps(tail, to + i)));
}

// A window's place in its image: the start of its first run, and whether all of the window lies inside.
struct Window {
  Window(const Problem& s, int64_t p, int64_t q)
      : h(p * s.o.stride[0] - s.o.padding[0]),
        w(q * s.o.stride[1] - s.o.padding[1]),
        inside(h >= 0 && w >= 0 && h + (s.KH - 1) * s.o.dilation[0] < s.H && w + s.KW <= s.W) {}
  int64_t h, w;
  bool inside;
};

// Adds one nonzero whose window leaves the image: to the filter's sums (kWeights), or to the image.
template <bool kWeights>
[[gnu::target("avx512f")]] void add_clipped(const Problem& s, const Window& at, float value, float* image,
                                            float* filter) {
  const int64_t skip = std::max<int64_t>(0, -at.w) * s.C, length = std::min(s.KW, s.W - at.w) * s.C - skip;
  const __m512 scale = _mm512_set1_ps(value);
  for (int64_t kh = 0; kh < s.KH && length > 0; ++kh) {
    const int64_t h = at.h + kh * s.o.dilation[0];
    if (h < 0 || h >= s.H) continue;
    float* run = image + (h * s.W + at.w) * s.C + skip;
    float* taps = filter + kh * s.KW * s.C + skip;
    if constexpr (kWeights)
      add_scaled(taps, run, scale, length);
    else
      add_scaled(run, taps, scale, length);
  }
}

[[gnu::target("avx512f"), gnu::always_inline]] inline unsigned nonzero_lanes(__m512 g) {
  return _mm512_cmp_ps_mask(g, _mm512_setzero_ps(), _CMP_NEQ_UQ);  // NaN counts
}

// A nonzero of a filter in one image: the start of its first run in x, and the gradient.
struct Nonzero {
  int32_t at;
  float value;
};

// Adds one image's share to the sums of the 16 filters from `first`, and to their bias gradients. KH is the
// number of the filter's rows, R the vectors in a run. `lists` has room for 16 times P*Q nonzeros.
template <int KH, int R>
[[gnu::target("avx512f")]] void add_weight_grad(const Problem& s, const float* dy, const float* image,
                                                int64_t first, float* sums, float* bias, Nonzero* lists) {
  Nonzero* end[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) end[lane] = lists + lane * s.P * s.Q;
  __m512 total = _mm512_loadu_ps(bias + first);
  for (int64_t p = 0; p < s.P; ++p)
    for (int64_t q = 0; q < s.Q; ++q) {
      const float* g = dy + (p * s.Q + q) * s.O + first;
      const __m512 values = _mm512_loadu_ps(g);
      total = _mm512_add_ps(total, values);
      const Window window(s, p, q);
      for (unsigned m = nonzero_lanes(values); m; m &= m - 1) {
        const int lane = std::countr_zero(m);
        if (window.inside)
          *end[lane]++ = {static_cast<int32_t>((window.h * s.W + window.w) * s.C), g[lane]};
        else
          add_clipped<true>(s, window, g[lane], const_cast<float*>(image), sums + (first + lane) * s.taps());
      }
    }
  _mm512_storeu_ps(bias + first, total);

  const int64_t row = s.o.dilation[0] * s.W * s.C;
  for (int lane = 0; lane < kLanes; ++lane) {
    float* to = sums + (first + lane) * s.taps();
    __m512 sum[KH * R];
#pragma GCC unroll 32
    for (int i = 0; i < KH * R; ++i) sum[i] = _mm512_loadu_ps(to + i * kLanes);
    for (const Nonzero* z = lists + lane * s.P * s.Q; z != end[lane]; ++z) {
      const __m512 scale = _mm512_set1_ps(z->value);
      const float* x = image + z->at;
#pragma GCC unroll 32
      for (int i = 0; i < KH * R; ++i)
        sum[i] = _mm512_fmadd_ps(scale, _mm512_loadu_ps(x + i / R * row + i % R * kLanes), sum[i]);
    }
#pragma GCC unroll 32
    for (int i = 0; i < KH * R; ++i) _mm512_storeu_ps(to + i * kLanes, sum[i]);
  }
}

// Adds the share of the filters [first, last) to one image's dx.
template <int KH, int R>
[[gnu::target("avx512f")]] void add_input_grad(const Problem& s, const float* dy, float* image, int64_t first,
                                               int64_t last, const float* filters) {
  const int64_t row = s.o.dilation[0] * s.W * s.C, taps = s.taps();
  for (int64_t p = 0; p < s.P; ++p)
    for (int64_t q = 0; q < s.Q; ++q) {
      const float* g = dy + (p * s.Q + q) * s.O;
      const Window window(s, p, q);
      if (!window.inside) {
        for (int64_t f = first; f < last; ++f)
          if (g[f] != 0) add_clipped<false>(s, window, g[f], image, const_cast<float*>(filters) + f * taps);
        continue;
      }
      __m512 sum[KH * R];
#pragma GCC unroll 32
      for (int i = 0; i < KH * R; ++i) sum[i] = _mm512_setzero_ps();
      for (int64_t f = first; f < last; f += kLanes)
        for (unsigned m = nonzero_lanes(_mm512_loadu_ps(g + f)); m; m &= m - 1) {
          const int64_t filter = f + std::countr_zero(m);
          const __m512 scale = _mm512_set1_ps(g[filter]);
#pragma GCC unroll 32
          for (int i = 0; i < KH * R; ++i)
            sum[i] = _mm512_fmadd_ps(scale, _mm512_loadu_ps(filters + filter * taps + i * kLanes), sum[i]);
        }
      float* to = image + (window.h * s.W + window.w) * s.C;
#pragma GCC unroll 32
      for (int i = 0; i < KH * R; ++i) {
        float* at = to + i / R * row + i % R * kLanes;
        _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), sum[i]));
      }
    }
}

// The functions for one filter size.
struct Kernels {
  int64_t KH, run;
  void (*weight_grad)(const Problem&, const float*, const float*, int64_t, float*, float*, Nonzero*);
  void (*input_grad)(const Problem&, const float*, float*, int64_t, int64_t, const float*);
};
template <int KH, int R> constexpr Kernels kernels_of() {
  return {KH, R * kLanes, &add_weight_grad<KH, R>, &add_input_grad<KH, R>};
}
// 3x3 with 16, 32 and 48 channels, 5x5 with 16: up to 27 registers of sums.
constexpr Kernels kKernels[] = {kernels_of<3, 3>(), kernels_of<3, 6>(), kernels_of<3, 9>(),
                                kernels_of<5, 5>()};

const Kernels* kernels_for(const Shape& w) {
  for (const Kernels& k : kKernels)
    if (k.KH == w[2] && k.run == w[3] * w[1]) return &k;
  return nullptr;
}

// Returns the share of nonzeros in evenly spaced rows of dy.
double sampled_density(const Tensor& dy) {
  const int64_t rows = dy.size(0) * dy.size(2), row = dy.size(3) * dy.size(1);
  const int64_t step = std::max<int64_t>(1, rows / 32);
  int64_t nonzero = 0, seen = 0;
  for (int64_t r = 0; r < rows; r += step, seen += row)
    for (const float *v = dy.ptr<float>() + r * row, *end = v + row; v != end; ++v) nonzero += *v != 0;
  return static_cast<double>(nonzero) / static_cast<double>(seen);
}

}  // namespace

bool prefers_sparse_grad(const Tensor& dy, const Tensor& x, const Shape& w, const raw::ConvGeometry& o) {
  return cpu::has_avx512() && dy.dtype() == DType::kF32 && o.rank() == 2 && o.groups == 1 &&
         w[0] % kLanes == 0 && o.dilation[1] == 1 && kernels_for(w) &&
         x.numel() / x.size(0) < (int64_t{1} << 31) && sampled_density(dy) < kMostNonzero;
}

void sparse_weight_grad(const Tensor& dw, const Tensor& db, const Tensor& dy, const Tensor& x,
                        const raw::ConvGeometry& o) {
  const Problem s(x, dy, dw.shape(), o);
  const Kernels& kernels = *kernels_for(dw.shape());
  const int64_t taps = s.taps(), part = s.O * taps + s.O;  // a part's sums, then its bias gradients
  const Tensor sums = empty({kParts, part}, {DType::kF32});
  parallel_for(0, kParts, 1, [&](int64_t first, int64_t last) {
    std::vector<Nonzero> lists(kLanes * s.P * s.Q);
    for (int64_t i = first; i < last; ++i) {
      float* mine = sums.ptr<float>() + i * part;
      std::memset(mine, 0, part * sizeof(float));
      for (int64_t n = s.N * i / kParts; n < s.N * (i + 1) / kParts; ++n)
        for (int64_t filter = 0; filter < s.O; filter += kLanes)
          kernels.weight_grad(s, dy.ptr<float>() + n * s.P * s.Q * s.O, x.ptr<float>() + n * s.H * s.W * s.C,
                              filter, mine, mine + s.O * taps, lists.data());
    }
  });
  auto total = [&](int64_t at) {
    float sum = 0;
    for (int64_t i = 0; i < kParts; ++i) sum += sums.ptr<float>()[i * part + at];
    return sum;
  };
  // sums[o, kh, kw, c] -> dw[o, c, kh, kw]
  parallel_for(0, s.O, 1 + 16384 / taps, [&](int64_t first, int64_t last) {
    for (int64_t f = first; f < last; ++f) {
      for (int64_t k = 0; k < s.KH * s.KW; ++k)
        for (int64_t c = 0; c < s.C; ++c)
          dw.ptr<float>()[(f * s.C + c) * s.KH * s.KW + k] = total(f * taps + k * s.C + c);
      if (db.defined()) db.ptr<float>()[f] = total(s.O * taps + f);
    }
  });
}

void sparse_input_grad(const Tensor& dx, const Tensor& dy, const Tensor& w, const raw::ConvGeometry& o) {
  const Problem s(dx, dy, w.shape(), o);
  const Kernels& kernels = *kernels_for(w.shape());
  const int64_t taps = s.taps();
  const Tensor filters = empty({s.O, taps});  // w[o, c, kh, kw] -> filters[o, kh, kw, c]
  for (int64_t f = 0; f < s.O; ++f)
    for (int64_t c = 0; c < s.C; ++c)
      for (int64_t k = 0; k < s.KH * s.KW; ++k)
        filters.ptr<float>()[f * taps + k * s.C + c] = w.ptr<float>()[(f * s.C + c) * s.KH * s.KW + k];
  // Filters that are taken together: as many as fit into 32 KiB of a first-level cache of 48 KiB.
  const int64_t together = std::max<int64_t>(kLanes, 8192 / taps / kLanes * kLanes);
  parallel_for(0, s.N, 1, [&](int64_t first, int64_t last) {
    for (int64_t n = first; n < last; ++n) {
      float* image = dx.ptr<float>() + n * s.H * s.W * s.C;
      std::memset(image, 0, s.H * s.W * s.C * sizeof(float));
      for (int64_t f = 0; f < s.O; f += together)
        kernels.input_grad(s, dy.ptr<float>() + n * s.P * s.Q * s.O, image, f, std::min(s.O, f + together),
                           filters.ptr<float>());
    }
  });
}

}  // namespace gradus
