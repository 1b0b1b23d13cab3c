#include "gradus/tensor/cpu/onednn/weight_layout.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "gradus/tensor/cpu/onednn/problems.h"
#include "gradus/tensor/cpu/register_transpose.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tensor/runtime/processor.h"

// Note [Layouts of filters]
// oneDNN keeps filters w[A][B][taps] in blocks. For example Acdb48a holds, for each 48 of A, for each tap,
// for each b, the 48 numbers of A side by side. Where 48 does not divide A it is filled up with zeros. Either
// A or B is innermost, in blocks of a multiple of 16, so that 16 neighbors along it fill one register.
//
// Where B is innermost and there is one tap, the 16 neighbors lie together in w too. All other filters are
// read as 16 x 16 numbers that are transposed in registers: 16 of A by 16 of B for one tap, and 16 filters by
// their taps for up to 16 taps.
//
// In bf16, pairs along the dim that is not innermost lie together: AcdB32a2b has pairs of B, ABcd8a16b2a has
// pairs of A. A pair is as large as an f32.

namespace gradus::onednn {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kAhead = 16 * kLanes;  // each row of w is a stream of its own

#define GRADUS_AVX512 gnu::target("avx512f")

// A blocked layout of [A, B, KH, KW].
class Blocks {
 public:
  explicit Blocks(Blocking of) : of_(std::move(of)) {}

  // Returns whether the innermost block consists of whole registers. In 16 bits, pairs of the other dim
  // must lie within it.
  bool serves(DType t) const {
    if (of_.sizes.size() != 4) return false;
    for (int64_t dim : of_.block_dims)
      if (dim > 1) return false;
    int last = int(of_.block_sizes.size()) - 1;
    if (t == DType::kBF16) {
      if (last < 1 || of_.block_sizes[last] != 2 || of_.block_dims[last] == of_.block_dims[last - 1])
        return false;
      --last;
    }
    return last >= 0 && of_.block_sizes[last] % kLanes == 0;
  }
  // Returns the dim whose neighbors lie together, as numbers or as pairs: 0 or 1.
  int innermost(DType t) const { return int(*(of_.block_dims.rbegin() + (t == DType::kBF16 ? 1 : 0))); }

  // Returns where the numbers of [a, b] start: at steps(0)[a] + steps(1)[b].
  std::vector<int64_t> steps(int dim) const {
    std::vector<int64_t> to(of_.padded_sizes[dim]);
    for (int64_t i = 0; i < int64_t(to.size()); ++i) {
      int64_t rest = i, inner = 1;
      for (int k = int(of_.block_sizes.size()) - 1; k >= 0; inner *= of_.block_sizes[k--])
        if (of_.block_dims[k] == dim) to[i] += rest % of_.block_sizes[k] * inner, rest /= of_.block_sizes[k];
      to[i] += rest * of_.steps[dim];
    }
    return to;
  }
  // Returns the step from one tap to the next; 0 if the taps are not evenly spaced.
  int64_t tap_step() const {
    return of_.sizes[2] == 1 || of_.steps[2] == of_.sizes[3] * of_.steps[3] ? of_.steps[3] : 0;
  }

 private:
  const Blocking of_;
};

// Filters [A, B, taps] and where each goes.
template <class T> struct Filters {
  const T* from;
  int64_t A, B, taps;
  T* to;
  std::vector<int64_t> a_steps, b_steps;
  int64_t tap_step;
};

// Copies 16 of A from a on: one tap, B innermost.
[[GRADUS_AVX512]] void copy_rows(const Filters<float>& f, int64_t a) {
  for (int64_t b = 0; b < f.B; b += kLanes) {
    const float* from = f.from + a * f.B + b;
    float* to = f.to + f.b_steps[b];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i, from += f.B) {
      __builtin_prefetch(from + kAhead);
      _mm512_storeu_ps(to + f.a_steps[a + i], _mm512_loadu_ps(from));
    }
  }
}

// Copies 16 of A from a on: one tap, A innermost.
[[GRADUS_AVX512]] void transpose_rows(const Filters<float>& f, int64_t a) {
  for (int64_t b = 0; b < f.B; b += kLanes) {
    __m512 rows[kLanes], columns[kLanes];
    const float* from = f.from + a * f.B + b;
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i, from += f.B) {
      __builtin_prefetch(from + kAhead);
      rows[i] = _mm512_loadu_ps(from);
    }
    cpu::transpose(rows, columns);
    float* to = f.to + f.a_steps[a];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) _mm512_storeu_ps(to + f.b_steps[b + i], columns[i]);
  }
}

// Copies all taps of 16 filters, `step` apart, to 16 neighbors for each tap.
[[GRADUS_AVX512]] inline void transpose_taps(const Filters<float>& f, const float* from, int64_t step,
                                             float* to) {
  const auto mask = __mmask16((1u << f.taps) - 1);
  __m512 filters[kLanes], by_tap[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    __builtin_prefetch(from + i * step + kAhead);
    filters[i] = _mm512_maskz_loadu_ps(mask, from + i * step);
  }
  cpu::transpose(filters, by_tap);
  for (int t = 0; t < f.taps; ++t) _mm512_storeu_ps(to + t * f.tap_step, by_tap[t]);
}

// Copies 16 of A from a on: several taps, B innermost.
[[GRADUS_AVX512]] void copy_taps(const Filters<float>& f, int64_t a) {
  for (int64_t i = a; i < a + kLanes; ++i)
    for (int64_t b = 0; b < f.B; b += kLanes)
      transpose_taps(f, f.from + (i * f.B + b) * f.taps, f.taps, f.to + f.a_steps[i] + f.b_steps[b]);
}

// Copies 16 of A from a on: several taps, A innermost.
[[GRADUS_AVX512]] void transpose_taps_of_rows(const Filters<float>& f, int64_t a) {
  for (int64_t b = 0; b < f.B; ++b)
    transpose_taps(f, f.from + (a * f.B + b) * f.taps, f.B * f.taps, f.to + f.a_steps[a] + f.b_steps[b]);
}

#define GRADUS_AVX512_WORDS gnu::target("avx512f,avx512bw")

// Like transpose_taps, for pairs whose two numbers come from two places.
[[GRADUS_AVX512_WORDS]] inline void transpose_pairs(const Filters<bf16>& f, const bf16* first,
                                                    const bf16* second, int64_t step, bf16* to) {
  alignas(64) static constexpr int16_t kPairs[] = {0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,
                                                   37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
                                                   11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  const __m512i pairs = _mm512_load_si512(kPairs);
  const auto mask = __mmask32((1u << f.taps) - 1);
  __m512 filters[kLanes], by_tap[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) {
    __builtin_prefetch(first + i * step + kAhead), __builtin_prefetch(second + i * step + kAhead);
    const __m512i a = _mm512_maskz_loadu_epi16(mask, first + i * step),
                  b = _mm512_maskz_loadu_epi16(mask, second + i * step);
    filters[i] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(a, pairs, b));
  }
  cpu::transpose(filters, by_tap);
  for (int t = 0; t < f.taps; ++t) _mm512_storeu_ps(to + t * f.tap_step, by_tap[t]);
}

// Copies 16 of A from a on: pairs of A, B innermost.
[[GRADUS_AVX512_WORDS]] void copy_pairs(const Filters<bf16>& f, int64_t a) {
  const int64_t row = f.B * f.taps;
  for (int64_t i = a; i < a + kLanes; i += 2)
    for (int64_t b = 0; b < f.B; b += kLanes) {
      const bf16* from = f.from + i * row + b * f.taps;
      transpose_pairs(f, from, from + row, f.taps, f.to + f.a_steps[i] + f.b_steps[b]);
    }
}

// Copies 16 of A from a on: pairs of B, A innermost.
[[GRADUS_AVX512_WORDS]] void transpose_pairs_of_rows(const Filters<bf16>& f, int64_t a) {
  const int64_t row = f.B * f.taps;
  for (int64_t b = 0; b < f.B; b += 2) {
    const bf16* from = f.from + a * row + b * f.taps;
    transpose_pairs(f, from, from + f.taps, row, f.to + f.a_steps[a] + f.b_steps[b]);
  }
}

// Returns the function that copies 16 of A. across: A is innermost.
auto copy_of(const Filters<float>& f, bool across) {
  return f.taps == 1 ? (across ? &transpose_rows : &copy_rows)
                     : (across ? &transpose_taps_of_rows : &copy_taps);
}
auto copy_of(const Filters<bf16>&, bool across) { return across ? &transpose_pairs_of_rows : &copy_pairs; }

template <class T> bool copy(const Tensor& w, const Blocks& blocks, const Tensor& to) {
  const Filters<T> f{w.ptr<T>(),  w.size(0),       w.size(1),       w.size(2) * w.size(3),
                     to.ptr<T>(), blocks.steps(0), blocks.steps(1), blocks.tap_step()};
  const bool pairs = sizeof(T) == 2;
  if (f.A % kLanes || f.B % kLanes || f.taps < (pairs ? 2 : 1) || f.taps > kLanes || f.tap_step == 0)
    return false;
  const bool across = blocks.innermost(w.dtype()) == 0;
  const int64_t padding = int64_t(f.a_steps.size()) - f.A;
  if (int64_t(f.b_steps.size()) > f.B || (padding > 0 && (f.taps > 1 || !across))) return false;
  for (int64_t b = 0; padding > 0 && b < f.B; ++b)
    std::fill_n(f.to + f.a_steps[f.A] + f.b_steps[b], padding, T(0.0f));
  const auto copy = copy_of(f, across);
  parallel_for(0, f.A / kLanes, 1 + 1024 / (f.B * f.taps), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) copy(f, i * kLanes);
  });
  return true;
}

}  // namespace

bool copy_filters(const Tensor& w, const Desc& want, const Tensor& to) {
  std::optional<Blocking> blocking = blocking_of(want);
  if (!cpu::has_avx512() || !blocking) return false;
  const Blocks blocks(*std::move(blocking));
  if (!blocks.serves(w.dtype())) return false;
  if (w.dtype() == DType::kF32) return copy<float>(w, blocks, to);
  return w.dtype() == DType::kBF16 && copy<bf16>(w, blocks, to);
}

}  // namespace gradus::onednn
