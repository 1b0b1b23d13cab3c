// 1x1 convolution with stride 1 and its gradients as matrix products, compiled per instruction set by Highway.
// Images are channels-last: x [N, C, H, W] is a matrix [pixels, C]; w is [O, C, 1, 1], row-major. The direct
// kernels compute f32, and bf16 with AVX512_BF16; other processors compute bf16 by a product in f32.
#include "gradus/tensor/cpu/conv/kernels.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/conv/pointwise.cc"
#include "gradus/tensor/cpu/levels.h"

#include <hwy/foreach_target.h>

#include "gradus/tensor/cpu/conv/products-inl.h"
#include "gradus/tensor/cpu/linalg/matmul_kernels.h"
#include "gradus/tensor/cpu/onednn/onednn.h"
#include "gradus/tensor/cpu/transpose-inl.h"
#include "gradus/tensor/cpu/widen.h"

#if HWY_TARGET == HWY_AVX3
#include "gradus/tensor/cpu/conv/products_bf16-inl.h"
#endif

// Note [Pointwise convolution]
// A 1x1 convolution is a matrix product:
//   y[pixel, n] = sum_k x[pixel, k] * f[k, n]
// where f is w transposed, or w itself for the gradient of x. The filters are packed into panels f[K][kPanel]
// of kPanel columns.
//
// With many pixels, all panels are packed first and threads divide the pixels. A chunk of about a hundred pixels
// stays in the second-level cache while all panels are read, and the next chunk is prefetched meanwhile.
//
// With few pixels and many filters, threads divide the panels. A thread packs a panel and multiplies all
// pixels by it.
//
// The gradient of w is a product summed over pixels: dw[n, k] = sum_pixel dy[pixel, n] * x[pixel, k]. Threads
// may divide the pixels, so its rounding may depend on their number.

HWY_BEFORE_NAMESPACE();
namespace gradus::cpu::HWY_NAMESPACE {
namespace {

// Elements of T in the 32 bits that one f32 lane multiplies: 1 for f32; 2 for bf16, adjacent in x, and rows k
// and k + 1 of f.
template <class T> constexpr int64_t kElementsPerLane = sizeof(float) / sizeof(T);

// Pixels of an image as rows of a matrix.
template <class T> struct Pixels {
  T* data;
  int64_t row;  // stride from one pixel to the next
};

// The matrix f[K][N] in w: f[k][n] = w[k][n], or w[n][k] if `transposed`. K and N are divisible by kPanel.
template <class T> struct Filters {
  const T* w;
  int64_t K, N;
  bool transposed;
  int64_t depth() const { return K / kElementsPerLane<T>; }
  // Floats per panel: one cache line more than needed, so that panels do not map to the same cache sets.
  int64_t panel_floats() const { return depth() * kPanel + kLanes; }
};

constexpr int64_t kPrefetchDistance = 16;  // rows of w to prefetch

// Packs columns [n, n + kPanel) of f.
void copy_panel(const Filters<float>& f, int64_t n, float* to) {
  for (int64_t k = 0; k < f.K; ++k) {
    const float* from = f.w + k * f.N + n;
    __builtin_prefetch(from + kPrefetchDistance * f.N),
        __builtin_prefetch(from + kPrefetchDistance * f.N + kLanes);
    std::memcpy(to + k * kPanel, from, kPanel * sizeof(float));
  }
}

#if HWY_TARGET == HWY_AVX3
[[GRADUS_AVX512_BF16]] void copy_panel(const Filters<bf16>& f, int64_t n, float* to) {
  for (int64_t k = 0; k < f.K; k += 2, to += kPanel) {
    const bf16* from = f.w + k * f.N + n;
    __builtin_prefetch(from + kPrefetchDistance * f.N),
        __builtin_prefetch(from + (kPrefetchDistance + 1) * f.N);
    const InterleavedPairs z = interleave(_mm512_loadu_si512(from), _mm512_loadu_si512(from + f.N));
    _mm512_storeu_si512(to, z.low), _mm512_storeu_si512(to + kLanes, z.high);
  }
}
#endif

// The same for transposed filters. Two adjacent bf16 are copied as one float.
template <class T> void copy_transposed_panel(const Filters<T>& f, int64_t n, float* to) {
  const auto* w = reinterpret_cast<const float*>(f.w);
  const int64_t K = f.depth();
  for (int64_t half = 0; half < kPanel; half += kLanes)
    for (int64_t k = 0; k < K; k += kLanes) {
      const float* from = w + (n + half) * K + k;
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) __builtin_prefetch(from + i * K + kPrefetchDistance * kLanes);
      Floats columns[kLanes];
      load_columns(from, K, kLanes, columns);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) store(to + (k + i) * kPanel + half, columns[i]);
    }
}

// Packs panels [first, last).
template <class T> void copy_panels(const Filters<T>& f, int64_t first, int64_t last, float* to) {
  for (int64_t i = first; i < last; ++i, to += f.panel_floats())
    f.transposed ? copy_transposed_panel(f, i * kPanel, to) : copy_panel(f, i * kPanel, to);
}

// The product functions by number of rows: index rows - 1.
template <class T> constexpr const auto& products() {
#if HWY_TARGET == HWY_AVX3
  if constexpr (kElementsPerLane<T> == 2) return kProductsOfPairs;
#endif
  if constexpr (kElementsPerLane<T> == 1) return kProducts;
}

// Returns the maximum number of pixels per product. Pixels at a multiple of 4 KiB share a set of the
// first-level cache, which has 12 ways.
int64_t max_rows_for_stride(int64_t row) {
  return row * sizeof(float) % 4096 == 0 ? std::min(12, kMaxRows) : kMaxRows;
}

// y = x f for many pixels: threads divide the pixels.
template <class T>
void multiply_by_pixels(Pixels<T> y, Pixels<const float> x, int64_t pixels, const Filters<T>& f) {
  const int64_t panels = f.N / kPanel, K = f.depth();
  const Tensor filters = scratch(panels * f.panel_floats());
  float* const copies = filters.ptr<float>();
  parallel_for(0, panels, 1 + 8192 / f.panel_floats(), [&](int64_t first, int64_t last) {
    copy_panels(f, first, last, copies + first * f.panel_floats());
  });
  constexpr int64_t kChunk = 8 * kMaxRows;
  const int64_t row_limit = max_rows_for_stride(x.row);
  parallel_for(0, pixels, kChunk / 2, [&](int64_t first, int64_t last) {
    for (int64_t at = first; at < last; at += kChunk) {
      const int64_t count = std::min(kChunk, last - at);
      for (int64_t i = 0; i < panels; ++i)
        for_row_blocks(
            count,
            [&](int64_t r, int64_t rows) {
              const int64_t bytes = rows * K * int64_t(sizeof(float)) / panels, next = at + kChunk + r;
              Prefetch prefetch;
              if (next + rows <= last)
                prefetch = {reinterpret_cast<const char*>(x.data + next * x.row) + i * bytes, bytes / K};
              products<T>()[rows - 1](x.data + (at + r) * x.row, x.row, 1, copies + i * f.panel_floats(),
                                      kPanel, K, y.data + (at + r) * y.row + i * kPanel, y.row, prefetch);
            },
            row_limit);
    }
  });
}

// y = x f for few pixels and many filters: threads divide the panels.
template <class T>
void multiply_by_panels(Pixels<T> y, Pixels<const float> from, int64_t pixels, const Filters<T>& f) {
  const int64_t panels = f.N / kPanel, shares = std::min<int64_t>(num_threads(), panels);
  const int64_t K = f.depth(), row = K + kLanes;
  const Tensor bytes = scratch(pixels * row + shares * f.panel_floats());
  float* const x = bytes.ptr<float>();
  parallel_for(0, pixels, 1 + 8192 / row, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      std::memcpy(x + i * row, from.data + i * from.row, K * sizeof(float));
  });
  parallel_for(0, shares, 1, [&](int64_t first_share, int64_t last_share) {
    for (int64_t s = first_share; s < last_share; ++s) {
      float* const panel = x + pixels * row + s * f.panel_floats();
      for (int64_t i = panels * s / shares; i < panels * (s + 1) / shares; ++i) {
        copy_panels(f, i, i + 1, panel);
        for_row_blocks(pixels, [&](int64_t r, int64_t rows) {
          products<T>()[rows - 1](x + r * row, row, 1, panel, kPanel, K, y.data + r * y.row + i * kPanel,
                                  y.row, {});
        });
      }
    }
  });
}

template <class T> void multiply(const Tensor& y, const Tensor& x, const Tensor& w, bool transposed) {
  const Filters<T> f{w.ptr<T>(), w.size(transposed ? 1 : 0), w.size(transposed ? 0 : 1), transposed};
  const int64_t pixels = x.numel() / f.K;
  const bool few_pixels = pixels <= 1024 && f.K * f.N >= 1 << 19;
  const Pixels<T> to{y.ptr<T>(), f.N};
  const Pixels<const float> from{reinterpret_cast<const float*>(x.ptr<T>()), f.depth()};
  (few_pixels ? multiply_by_panels<T> : multiply_by_pixels<T>)(to, from, pixels, f);
}

// Returns whether x is bf16 on a processor without bf16 instructions.
bool needs_f32(const Tensor& x) { return x.dtype() == DType::kBF16 && is_computed_in_f32(x.dtype()); }

// y = x f: the forward if `transposed`, else the input gradient, for which y is dx and x is dy.
void multiply(const Tensor& y, const Tensor& x, const Tensor& w, bool transposed) {
  if (needs_f32(x)) {
    const auto matrix = [](const Tensor& image) {
      const int64_t C = image.size(1);
      return view_as_strided(image, {image.numel() / C, C}, {C, 1}, image.impl().offset);
    };
    const int64_t C = w.size(1), K = w.size(transposed ? 1 : 0), N = w.size(transposed ? 0 : 1);
    const Strides steps = transposed ? Strides{1, C} : Strides{C, 1};
    return narrow_matmul(matrix(y), matrix(x), view_as_strided(w, {K, N}, steps, w.impl().offset), {});
  }
#if HWY_TARGET == HWY_AVX3
  if (x.dtype() == DType::kBF16) return multiply<bf16>(y, x, w, transposed);
#endif
  multiply<float>(y, x, w, transposed);
}

// The directions that these kernels serve for f32, as measured: with AVX2, oneDNN is as fast in forward and
// input gradient; with AVX-512, oneDNN computes the weight gradient.
constexpr bool kUseForOutputs = HWY_TARGET != HWY_AVX2, kUseForWeights = HWY_TARGET != HWY_AVX3;

bool is_pointwise(const ConvProblem& p) {
  if (p.geometry.rank() != 2 || p.geometry.groups != 1 || p.bias.defined()) return false;
  for (int d = 0; d < 2; ++d)
    if (p.w.size(d + 2) != 1 || p.geometry.stride[d] != 1 || p.geometry.padding[d] != 0) return false;
  return p.x.dtype() == p.y.dtype();
}

bool is_profitable(const ConvProblem& p) {
  if (!is_pointwise(p)) return false;
  if (needs_f32(p.x)) return p.w.dtype() == DType::kBF16;
  if (!kUseForOutputs) return false;
  const DType t = p.x.dtype();
  if (t != DType::kF32 && (t != DType::kBF16 || level() != Level::kAvx512Bf16)) return false;
  return p.w.size(0) % kPanel == 0 && p.w.size(1) % kPanel == 0 && p.x.numel() / p.x.size(1) >= 256;
}
bool is_profitable_forward(const ConvProblem& p) {
  return is_profitable(p) && (needs_f32(p.x) || !onednn::should_cache_reordered(p.w));
}

bool is_profitable_for_weights(const ConvProblem& p) {
  const int64_t O = p.w.size(0), C = p.w.size(1);
  return is_pointwise(p) && (needs_f32(p.x) || (kUseForWeights && p.x.dtype() == DType::kF32)) &&
         O >= kMaxRows && C % kPanel == 0 && O * C < (int64_t{1} << 30) && O * C >= 150 * (O + C) &&
         p.y.numel() / O >= 256;
}

void forward(const ConvProblem& p) { multiply(p.y, p.x, p.w, true); }
void input_grad(const ConvProblem& p) { multiply(p.x, p.y, p.w, false); }

// dw is f32. Pixels are copied as f32 rows or panels (Operands), over which PositionSums sums the products.
template <class T> void weight_grad(const Tensor& dw, const ConvProblem& p) {
  const int64_t O = p.w.size(0), C = p.w.size(1), pixels = p.x.numel() / C;
  const auto copy = [](const Tensor& from, int64_t channels, int64_t first, int64_t last, int64_t base,
                       const Operands& to) {
    for (int64_t i = first; i < last; ++i) {
      const T* const pixel = from.ptr<T>() + i * channels;
      for (int64_t c = 0; c < channels; c += kPanel) {
        float* const panel = to.at(0, i - base, c);
        int64_t k = 0;
        for (const int64_t n = std::min<int64_t>(kPanel, channels - c); k < n;) {
          if (k + kLanes <= n)
            store(panel + k, load(pixel + c + k)), k += kLanes;
          else
            panel[k] = pixel[c + k], ++k;
        }
      }
    }
  };
  const auto sums =
      PositionSums{.planes = 1, .O = O, .C = C, .dy = p.y, .x = p.x, .positions = pixels}.compute(
          [&](int64_t first, int64_t last, int64_t base, const Operands& d, const Operands& v) {
            copy(p.y, O, first, last, base, d);
            copy(p.x, C, first, last, base, v);
          });
  parallel_for(0, O, 1 + 16384 / C, [&](int64_t first, int64_t last) {
    for (int64_t o = first; o < last; ++o)
      std::memcpy(dw.ptr<float>() + o * C, sums.total(0, o, C), C * sizeof(float));
  });
}
void weight_grad(const ConvProblem& p) {
  compute_in_f32(p.w, [&](const Tensor& dw) {
    p.x.dtype() == DType::kBF16 ? weight_grad<bf16>(dw, p) : weight_grad<float>(dw, p);
  });
}

constexpr ConvKernels kPointwise = {{"pointwise product", is_profitable_forward, forward},
                                    {"pointwise product", is_profitable, input_grad},
                                    {"pointwise product", is_profitable_for_weights, weight_grad}};

}  // namespace
}  // namespace gradus::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
const gradus::ConvKernels& gradus::pointwise_kernels() { return *GRADUS_DISPATCH(kPointwise); }
#endif
