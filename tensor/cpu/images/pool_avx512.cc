#include "gradus/tensor/cpu/images/pool_avx512.h"

#include <immintrin.h>

#include <limits>

#include "gradus/tensor/cpu/images/pool_windows.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/runtime/processor.h"

#define GRADUS_AVX512 [[gnu::target("avx512f,avx512bw,avx512vl")]]
#define GRADUS_INLINE __attribute__((target("avx512f,avx512bw,avx512vl"), always_inline))

namespace gradus::cpu {
namespace {

constexpr int64_t kLanes = 16;

// Calls f(lanes, first channel) for vectors that cover all C channels. The last vector may have fewer lanes.
template <class F> GRADUS_AVX512 [[gnu::always_inline]] inline void for_each_vector(int64_t C, F f) {
  int64_t c = 0;
  for (; c + kLanes <= C; c += kLanes) f(__mmask16(-1), c);
  if (c < C) f(__mmask16((1 << (C - c)) - 1), c);
}

GRADUS_AVX512 inline __m512 load(__mmask16 lanes, const bf16* p) {
  const __m512i bits = _mm512_maskz_cvtepu16_epi32(lanes, _mm256_maskz_loadu_epi16(lanes, p));
  return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(-1, bits, 16));
}

GRADUS_AVX512 inline __m512 load(__mmask16 lanes, const float* p) { return _mm512_maskz_loadu_ps(lanes, p); }

// Rounds as bf16(float) does. Stores with a mask only where lanes are missing, because masked stores
// are far slower.
GRADUS_AVX512 inline void store(bf16* p, __mmask16 lanes, __m512 v) {
  const __m512i bits = _mm512_castps_si512(v), high = _mm512_maskz_srli_epi32(-1, bits, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  const __m512i rounded = _mm512_maskz_srli_epi32(-1, up, 16);
  const __m512i all = _mm512_mask_or_epi32(rounded, nan, high, _mm512_set1_epi32(0x40));
  const __m256i narrow = _mm512_maskz_cvtepi32_epi16(-1, all);
  if (lanes == __mmask16(-1))
    _mm256_storeu_si256((__m256i*)p, narrow);
  else
    _mm256_mask_storeu_epi16(p, lanes, narrow);
}
GRADUS_AVX512 inline void store(float* p, __mmask16 lanes, __m512 v) {
  if (lanes == __mmask16(-1))
    _mm512_storeu_ps(p, v);
  else
    _mm512_mask_storeu_ps(p, lanes, v);
}
GRADUS_AVX512 inline void store(uint8_t* p, __mmask16 lanes, __m512i v) {
  const __m128i narrow = _mm512_maskz_cvtepi32_epi8(-1, v);
  if (lanes == __mmask16(-1))
    _mm_storeu_si128((__m128i*)p, narrow);
  else
    _mm_mask_storeu_epi8(p, lanes, narrow);
}

// Writes, for each channel, the largest of a window's cells, or a NaN. `where` may be null.
template <class T>
GRADUS_AVX512 void pool_window(T* to, uint8_t* where, const T* from, std::span<const Cell> cells, int64_t C) {
  for_each_vector(C, [&](__mmask16 lanes, int64_t c) GRADUS_INLINE {
    __m512 best = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
    __m512i winner = _mm512_set1_epi32(cells.empty() ? 0 : cells[0].number);
    for (const Cell& cell : cells) {
      const __m512 v = load(lanes, from + cell.offset + c);
      const __mmask16 wins = _mm512_cmp_ps_mask(v, best, _CMP_GT_OQ) | _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
      best = _mm512_mask_mov_ps(best, wins, v);
      winner = _mm512_mask_mov_epi32(winner, wins, _mm512_set1_epi32(cell.number));
    }
    store(to + c, lanes, best);
    if (where) store(where + c, lanes, winner);
  });
}

// Sums dy over the windows in which a place won. This is the gradient of the place.
template <class T>
GRADUS_AVX512 void collect(T* to, const T* dy, const uint8_t* index, std::span<const Cell> windows,
                           int64_t C) {
  for_each_vector(C, [&](__mmask16 lanes, int64_t c) GRADUS_INLINE {
    __m512 sum = _mm512_setzero_ps();
    for (const Cell& window : windows) {
      const __m128i number = _mm_set1_epi8(char(window.number));
      const __m128i winner = _mm_maskz_loadu_epi8(lanes, index + window.offset + c);
      const __mmask16 won = _mm_mask_cmpeq_epi8_mask(lanes, winner, number);
      sum = _mm512_mask_add_ps(sum, won, sum, load(lanes, dy + window.offset + c));
    }
    store(to + c, lanes, sum);
  });
}

// A window that covers a place, and the number of the place's cell within it.
struct Look {
  int64_t window, cell;
};
using Looks = std::vector<std::vector<Look>>;

// Returns, for each place along an axis, the windows that cover it, in order. span(i) is the
// span of window i.
template <class F> Looks looks_along(int64_t in, int64_t out, F span) {
  Looks looks(in);
  for (int64_t i = 0; i < out; ++i) {
    const Span s = span(i);
    for (int64_t k = s.first; k < s.last; ++k) looks[s.origin + k * s.step].push_back({i, k});
  }
  return looks;
}

template <class T> void pool(const Tensor& y, const Tensor& index, const Tensor& x, const PoolWindows& w) {
  const int64_t C = x.size(1), image = image_elements(w, C);
  uint8_t* const where = index.defined() ? index.ptr<uint8_t>() : nullptr;
  parallel_for(0, x.size(0) * output_rows(w), row_grain(w, C), [&](int64_t first, int64_t last) {
    for_each_window(w, C, first, last, [&](const Window& window) {
      pool_window(y.ptr<T>() + window.at, where ? where + window.at : nullptr,
                  x.ptr<T>() + window.image * image, window.cells, C);
    });
  });
}

// Every place collects its own gradient in the order of the windows, so each sum is rounded once.
template <class T>
void scatter(const Tensor& dx, const Tensor& dy, const Tensor& index, const PoolWindows& w) {
  const Looks slices = looks_along(w.input.d, w.output.d, [&](int64_t i) { return slices_of(w, i); }),
              rows = looks_along(w.input.h, w.output.h, [&](int64_t i) { return rows_of(w, i); }),
              columns = looks_along(w.input.w, w.output.w, [&](int64_t i) { return columns_of(w, i); });
  const int64_t C = dx.size(1), image = output_rows(w) * w.output.w * C;
  const auto collect_row = [&](int64_t row, std::vector<Cell>& windows) {
    const int64_t h = row % w.input.h, d = row / w.input.h % w.input.d, n = row / w.input.h / w.input.d;
    for (int64_t v = 0; v < w.input.w; ++v) {
      windows.clear();
      for (const Look& l : slices[d])
        for (const Look& i : rows[h])
          for (const Look& j : columns[v])
            windows.push_back({int32_t((l.cell * w.kernel.h + i.cell) * w.kernel.w + j.cell),
                               ((l.window * w.output.h + i.window) * w.output.w + j.window) * C});
      collect(dx.ptr<T>() + (row * w.input.w + v) * C, dy.ptr<T>() + n * image,
              index.ptr<uint8_t>() + n * image, windows, C);
    }
  };
  const int64_t grain = 1 + 16384 / (1 + w.input.w * C);
  parallel_for(0, dx.size(0) * w.input.d * w.input.h, grain, [&](int64_t first, int64_t last) {
    std::vector<Cell> windows;
    for (int64_t row = first; row < last; ++row) collect_row(row, windows);
  });
}

}  // namespace

bool has_avx512_pool(const Tensor& x, const PoolWindows& w) {
  return has_avx512() && (x.dtype() == DType::kF32 || x.dtype() == DType::kBF16) && w.cells() <= 256;
}

void max_pool_avx512(const Tensor& y, const Tensor& index, const Tensor& x, const PoolWindows& w) {
  x.dtype() == DType::kF32 ? pool<float>(y, index, x, w) : pool<bf16>(y, index, x, w);
}

void max_pool_scatter_avx512(const Tensor& dx, const Tensor& dy, const Tensor& index, const PoolWindows& w) {
  dx.dtype() == DType::kF32 ? scatter<float>(dx, dy, index, w) : scatter<bf16>(dx, dy, index, w);
}

}  // namespace gradus::cpu
