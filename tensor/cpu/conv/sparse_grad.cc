// Gradients of 2-dim convolution that visit only the nonzeros of dy, compiled per instruction set. In a
// ConvProblem p, p.y is dy. The input gradient reads p.w and writes dx to p.x; the weight gradient reads p.x and
// writes dw to p.w and, if defined, db to p.bias. x, dx and dy are channels-last [N,C,H,W], of one dtype: f32, or
// bf16 on processors without AVX512_BF16; sums are f32. w and dw are row-major [O,C,KH,KW]. is_profitable() tells
// whether the functions support a problem and are faster than the dense algorithms. Threads divide the images.
#include "gradus/tensor/cpu/conv/kernels.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "gradus/tensor/cpu/convert.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/conv/sparse_grad.cc"
#include "gradus/tensor/cpu/levels.h"

#include <hwy/foreach_target.h>

#include "gradus/tensor/cpu/vectors-inl.h"
#include "gradus/tensor/cpu/widen.h"
#include "gradus/tensor/runtime/parallel.h"

// Note [Sparse gradients]
// At output pixel (p, q), row kh and column kw of a filter lie on row i = p * stride - padding + kh * dilation and
// column j = q * stride - padding + kw of the image. A nonzero dy[n, p, q, o] adds
//   dy * x[n, i, j, c]    to  dw[o, kh, kw, c]
//   dy * w[o, kh, kw, c]  to  dx[n, i, j, c]
//   dy                    to  db[o]
// A filter row kh has KW * C elements, adjacent in the image and in the filter, whose order is [o, kh, kw, c]
// here. The KH * KW * C sums of a filter, or a part of them at a time, stay in vector registers.
//
// dw is computed filter by filter: the sums of a filter stay in registers while its nonzeros are visited. dx is
// computed output pixel by output pixel: the sums of a pixel's window stay in registers while the pixel's nonzeros
// are visited. Windows that extend beyond the image are added row by row. A zero of dy contributes nothing, even
// if x or w is infinite.
//
// For dw the images are divided into kParts parts with partial sums, which are added in order. So the result does
// not depend on the number of threads.

HWY_BEFORE_NAMESPACE();
namespace gradus::cpu::HWY_NAMESPACE {
namespace {

// Returns the density (fraction of nonzeros) of dy below which these kernels were measured to be faster than the
// dense ones, for filters of `rows` rows. AVX2 has too few registers for a filter's sums. Windows that extend
// beyond the image (padded) take longer.
constexpr double max_density(int64_t rows, bool padded) {
  if (HWY_TARGET == HWY_AVX3) return 0.3;
  return rows == 3 ? (padded ? 0.06 : 0.15) : (padded ? 0.2 : 0.3);
}
constexpr int64_t kParts = 8;

// The sizes of one convolution, by the letters of the shapes x [N,C,H,W], w [O,C,KH,KW], y [N,O,P,Q].
struct Problem {
  const ConvProblem& p;
  int64_t N = p.x.size(0), C = p.x.size(1), H = p.x.size(2), W = p.x.size(3);
  int64_t O = p.w.size(0), KH = p.w.size(2), KW = p.w.size(3), P = p.y.size(2), Q = p.y.size(3);
  raw::ConvGeometry o = p.geometry;
  int64_t taps() const { return KH * KW * C; }
};

// to[i] += scale * from[i] for i < n, where n is divisible by kLanes.
HWY_INLINE void add_scaled(float* to, const float* from, float scale, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes)
    store(to + i, hn::MulAdd(hn::Set(kFloats, scale), load(from + i), load(to + i)));
}

// The window of output pixel (p, q): the position (h, w) of its first tap, and whether it lies inside the image.
struct Window {
  Window(const Problem& s, int64_t p, int64_t q)
      : h(p * s.o.stride[0] - s.o.padding[0]),
        w(q * s.o.stride[1] - s.o.padding[1]),
        inside(h >= 0 && w >= 0 && h + (s.KH - 1) * s.o.dilation[0] < s.H && w + s.KW <= s.W) {}
  int64_t h, w;
  bool inside;
};

// Adds one nonzero whose window extends beyond the image: to the filter's sums (kWeights), or to the image.
template <bool kWeights>
void add_clipped(const Problem& s, const Window& at, float value, float* image, float* filter) {
  const int64_t skip = std::max<int64_t>(0, -at.w) * s.C, length = std::min(s.KW, s.W - at.w) * s.C - skip;
  for (int64_t kh = 0; kh < s.KH && length > 0; ++kh) {
    const int64_t h = at.h + kh * s.o.dilation[0];
    if (h < 0 || h >= s.H) continue;
    float* run = image + (h * s.W + at.w) * s.C + skip;
    float* taps = filter + kh * s.KW * s.C + skip;
    if constexpr (kWeights)
      add_scaled(taps, run, value, length);
    else
      add_scaled(run, taps, value, length);
  }
}

// Returns a bit mask of the lanes that are not zero. NaN is not zero.
HWY_INLINE unsigned nonzero_lanes(Floats g) {
  uint16_t bits = 0;
  hn::StoreMaskBits(kFloats, hn::Not(g == hn::Zero(kFloats)), reinterpret_cast<uint8_t*>(&bits));
  return bits;
}

// Returns the number of vector sums that stay in registers at a time: all `count`, or an equal part of them.
constexpr int sums_in_registers(int count) {
  constexpr int kMaxSums = kRegisters - 4;
  const int parts = (count + kMaxSums - 1) / kMaxSums;
  return (count + parts - 1) / parts;
}

// Calls f(first, number) for each part of kCount sums, with std::integral_constant arguments.
template <int kCount, int kFirst = 0, class F> HWY_INLINE void for_each_sum_group(const F& f) {
  constexpr int kPart = std::min(sums_in_registers(kCount), kCount - kFirst);
  f(std::integral_constant<int, kFirst>(), std::integral_constant<int, kPart>());
  if constexpr (kFirst + kPart < kCount) for_each_sum_group<kCount, kFirst + kPart>(f);
}

// A nonzero of dy: the offset of its window in the image, in elements, and its value.
struct Nonzero {
  int32_t at;
  float value;
};

// Adds one image's contribution to the sums of filters [first, first + kLanes) and to their bias gradients. KH is
// the number of filter rows, R the number of vectors per filter row. `lists` is a buffer of kLanes * P * Q
// nonzeros: the list of each filter.
template <int KH, int R>
void add_weight_grad(const Problem& s, const float* dy, const float* image, int64_t first, float* sums,
                     float* bias, Nonzero* lists) {
  Nonzero* end[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) end[lane] = lists + lane * s.P * s.Q;
  Floats total = load(bias + first);
  for (int64_t p = 0; p < s.P; ++p)
    for (int64_t q = 0; q < s.Q; ++q) {
      const float* g = dy + (p * s.Q + q) * s.O + first;
      const Floats values = load(g);
      total = total + values;
      const Window window(s, p, q);
      for (unsigned m = nonzero_lanes(values); m; m &= m - 1) {
        const int lane = std::countr_zero(m);
        if (window.inside)
          *end[lane]++ = {static_cast<int32_t>((window.h * s.W + window.w) * s.C), g[lane]};
        else
          add_clipped<true>(s, window, g[lane], const_cast<float*>(image), sums + (first + lane) * s.taps());
      }
    }
  store(bias + first, total);
  const int64_t row = s.o.dilation[0] * s.W * s.C;
  for (int lane = 0; lane < kLanes; ++lane) {
    float* to = sums + (first + lane) * s.taps();
    const Nonzero* const begin = lists + lane * s.P * s.Q;
    for_each_sum_group<KH * R>([&](auto from, auto count) HWY_ATTR __attribute__((always_inline)) {
      constexpr int kFrom = decltype(from)::value, kCount = decltype(count)::value;
      Floats sum[kCount];
#pragma GCC unroll 32
      for (int i = 0; i < kCount; ++i) sum[i] = load(to + (kFrom + i) * kLanes);
      for (const Nonzero* z = begin; z != end[lane]; ++z) {
        const Floats scale = hn::Set(kFloats, z->value);
        const float* x = image + z->at;
#pragma GCC unroll 32
        for (int i = 0; i < kCount; ++i)
          sum[i] = hn::MulAdd(scale, load(x + (kFrom + i) / R * row + (kFrom + i) % R * kLanes), sum[i]);
      }
#pragma GCC unroll 32
      for (int i = 0; i < kCount; ++i) store(to + (kFrom + i) * kLanes, sum[i]);
    });
  }
}

// Adds the contribution of filters [first, last) to `image`, the dx of one image.
template <int KH, int R>
void add_input_grad(const Problem& s, const float* dy, float* image, int64_t first, int64_t last,
                    const float* filters) {
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
      float* const to = image + (window.h * s.W + window.w) * s.C;
      for_each_sum_group<KH * R>([&](auto from, auto count) HWY_ATTR __attribute__((always_inline)) {
        constexpr int kFrom = decltype(from)::value, kCount = decltype(count)::value;
        Floats sum[kCount];
#pragma GCC unroll 32
        for (int i = 0; i < kCount; ++i) sum[i] = hn::Zero(kFloats);
        for (int64_t f = first; f < last; f += kLanes)
          for (unsigned m = nonzero_lanes(load(g + f)); m; m &= m - 1) {
            const int64_t filter = f + std::countr_zero(m);
            const Floats scale = hn::Set(kFloats, g[filter]);
#pragma GCC unroll 32
            for (int i = 0; i < kCount; ++i)
              sum[i] = hn::MulAdd(scale, load(filters + filter * taps + (kFrom + i) * kLanes), sum[i]);
          }
#pragma GCC unroll 32
        for (int i = 0; i < kCount; ++i) {
          float* at = to + (kFrom + i) / R * row + (kFrom + i) % R * kLanes;
          store(at, load(at) + sum[i]);
        }
      });
    }
}

// The functions for filters of KH rows of `run` = KW * C elements.
struct Kernels {
  int64_t KH, run;
  void (*weight_grad)(const Problem&, const float*, const float*, int64_t, float*, float*, Nonzero*);
  void (*input_grad)(const Problem&, const float*, float*, int64_t, int64_t, const float*);
};
template <int KH, int KW, int C> constexpr Kernels kernels_of() {
  constexpr int R = KW * C / kLanes;
  return {KH, R * kLanes, &add_weight_grad<KH, R>, &add_input_grad<KH, R>};
}
// The filter sizes whose sums fit into the registers of AVX-512.
constexpr Kernels kKernels[] = {kernels_of<3, 3, 16>(), kernels_of<3, 3, 32>(), kernels_of<3, 3, 48>(),
                                kernels_of<5, 5, 16>()};

// Returns the kernels for filters of shape w, or null. C must be divisible by kLanes, so that the taps of a row
// that lie inside the image, of which each has C elements, are a whole number of vectors.
const Kernels* kernels_for(const Shape& w) {
  for (const Kernels& k : kKernels)
    if (k.KH == w[2] && k.run == w[3] * w[1] && w[1] % kLanes == 0) return &k;
  return nullptr;
}

// Access to the images of a tensor as f32: the tensor's own memory if it is f32, else a buffer of one image, which
// is a tensor because vector loads need its cache-line alignment. read(n) and at(n) return image n with and
// without its contents; write(n) stores it. A buffer contains one image at a time. Each thread has its own object.
class F32Images {
 public:
  F32Images(const Tensor& t, int64_t elements)
      : t_(t), elements_(elements), buffer_(t.dtype() == DType::kF32 ? Tensor() : empty({elements})) {}
  float* at(int64_t n) { return buffer_.defined() ? buffer_.ptr<float>() : t_.ptr<float>() + n * elements_; }
  float* read(int64_t n) {
    if (buffer_.defined()) converter(DType::kF32, t_.dtype())(elements_, at(n), 1, image_data(n), 1);
    return at(n);
  }
  void write(int64_t n) {
    if (buffer_.defined()) converter(t_.dtype(), DType::kF32)(elements_, image_data(n), 1, at(n), 1);
  }

 private:
  void* image_data(int64_t n) const {
    return static_cast<char*>(t_.raw_ptr()) + n * elements_ * size_of(t_.dtype());
  }
  const Tensor& t_;
  int64_t elements_;
  Tensor buffer_;
};

// Returns the fraction of nonzeros in at least 32 evenly spaced image rows of dy, or in all rows if there are
// fewer.
template <class T> double sampled_density(const Tensor& dy) {
  const int64_t rows = dy.size(0) * dy.size(2), row = dy.size(3) * dy.size(1);
  const int64_t step = std::max<int64_t>(1, rows / 32);
  int64_t nonzero = 0, sampled = 0;
  for (int64_t r = 0; r < rows; r += step, sampled += row)
    for (const T *v = dy.ptr<T>() + r * row, *end = v + row; v != end; ++v) nonzero += *v != 0;
  return static_cast<double>(nonzero) / static_cast<double>(sampled);
}

bool is_profitable(const ConvProblem& p) {
  const Tensor &x = p.x, &w = p.w, &dy = p.y;
  const raw::ConvGeometry& o = p.geometry;
  const bool is_f32 = dy.dtype() == DType::kF32;
  return x.dtype() == dy.dtype() && is_computed_in_f32(dy.dtype()) && o.rank() == 2 && o.groups == 1 &&
         w.size(0) % kLanes == 0 && o.dilation[1] == 1 && kernels_for(w.shape()) &&
         x.numel() / x.size(0) < (int64_t{1} << 31) &&
         (is_f32 ? sampled_density<float>(dy) : sampled_density<bf16>(dy)) <
             max_density(w.size(2), o.padding[0] + o.padding[1] > 0);
}

void weight_grad(const ConvProblem& p, const Tensor& dw, const Tensor& db) {
  const Problem s{p};
  const Kernels& kernels = *kernels_for(dw.shape());
  const int64_t taps = s.taps(), part_size = s.O * taps + s.O;  // floats: sums, bias gradients
  const Tensor sums = empty({kParts, part_size}, {DType::kF32});
  parallel_for(0, kParts, 1, [&](int64_t first, int64_t last) {
    std::vector<Nonzero> lists(kLanes * s.P * s.Q);
    F32Images grads(p.y, s.P * s.Q * s.O), images(p.x, s.H * s.W * s.C);
    for (int64_t i = first; i < last; ++i) {
      float* partial_sums = sums.ptr<float>() + i * part_size;
      std::memset(partial_sums, 0, part_size * sizeof(float));
      for (int64_t n = s.N * i / kParts; n < s.N * (i + 1) / kParts; ++n) {
        const float *g = grads.read(n), *image = images.read(n);
        for (int64_t filter = 0; filter < s.O; filter += kLanes)
          kernels.weight_grad(s, g, image, filter, partial_sums, partial_sums + s.O * taps, lists.data());
      }
    }
  });
  auto total = [&](int64_t at) {
    float sum = 0;
    for (int64_t i = 0; i < kParts; ++i) sum += sums.ptr<float>()[i * part_size + at];
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

void weight_grad(const ConvProblem& p) {
  compute_in_f32(p.w, [&](const Tensor& dw) {
    compute_in_f32(p.bias, [&](const Tensor& db) { weight_grad(p, dw, db); });
  });
}

void input_grad(const ConvProblem& p) {
  const Problem s{p};
  const Tensor w = as_f32(p.w);
  const Kernels& kernels = *kernels_for(w.shape());
  const int64_t taps = s.taps();
  const Tensor filters = empty({s.O, taps});  // w[o, c, kh, kw] -> filters[o, kh, kw, c]
  for (int64_t f = 0; f < s.O; ++f)
    for (int64_t c = 0; c < s.C; ++c)
      for (int64_t k = 0; k < s.KH * s.KW; ++k)
        filters.ptr<float>()[f * taps + k * s.C + c] = w.ptr<float>()[(f * s.C + c) * s.KH * s.KW + k];
  // Filters per pass: as many as fit into 32 KiB of the first-level cache.
  const int64_t filters_per_pass = std::max<int64_t>(kLanes, 8192 / taps / kLanes * kLanes);
  parallel_for(0, s.N, 1, [&](int64_t first, int64_t last) {
    F32Images grads(p.y, s.P * s.Q * s.O), images(p.x, s.H * s.W * s.C);
    for (int64_t n = first; n < last; ++n) {
      const float* g = grads.read(n);
      float* image = images.at(n);
      std::memset(image, 0, s.H * s.W * s.C * sizeof(float));
      for (int64_t f = 0; f < s.O; f += filters_per_pass)
        kernels.input_grad(s, g, image, f, std::min(s.O, f + filters_per_pass), filters.ptr<float>());
      images.write(n);
    }
  });
}

constexpr ConvKernels kSparseGrad = {.input_grad = {"sparse", is_profitable, input_grad},
                                     .weight_grad = {"sparse", is_profitable, weight_grad}};

}  // namespace
}  // namespace gradus::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
const gradus::ConvKernels& gradus::sparse_grad_kernels() { return *GRADUS_DISPATCH(kSparseGrad); }
#endif
