// copy_filters: reorders row-major filters w [A, B, KH, KW], f32 or bf16, into one of oneDNN's blocked layouts, by
// transposing kLanes x kLanes blocks in registers. Compiled per instruction set. Returns false without a copy
// unless kLanes divides A and B and there are 1 (f32 only) or 4 to 16 taps (KH * KW) and a supported blocking.
#include "gradus/tensor/cpu/onednn/onednn.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/cpu/onednn/weight_layout.cc"
#include "gradus/tensor/cpu/levels.h"

#include <hwy/foreach_target.h>

#include "gradus/tensor/cpu/onednn/problems.h"
#include "gradus/tensor/cpu/transpose-inl.h"
#include "gradus/tensor/runtime/parallel.h"

// Note [Layouts of filters]
// oneDNN stores filters w[A][B][taps] in blocks. For example Acdb48a is [A / 48][taps][B][48 of A], padded
// with zeros if 48 does not divide A. Either A or B is innermost, in blocks of a multiple of kLanes, so
// kLanes consecutive elements along the innermost dim are one vector.
//
// If B is innermost and there is one tap, the kLanes elements are adjacent in w too. All other filters are
// transposed in registers: kLanes of A by kLanes of B for one tap, and kLanes filters by their taps for 4 to
// 16 taps.
//
// In bf16, pairs along the dim that is not innermost are adjacent: AcdB32a2b has pairs of B, ABcd8a16b2a has
// pairs of A. A pair has the size of an f32.

HWY_BEFORE_NAMESPACE();
namespace gradus::cpu::HWY_NAMESPACE {
namespace {

using onednn::Blocking;

constexpr int64_t kPrefetchDistance = 256;  // prefetch distance in elements, for each row of w
constexpr int kMaxTaps = 16;

// A blocked layout of [A, B, KH, KW].
class BlockedLayout {
 public:
  explicit BlockedLayout(Blocking of) : of_(std::move(of)) {}
  // Returns whether this layout is supported for dtype t: the innermost block is a multiple of kLanes
  // elements, or of kLanes pairs along the other dim for bf16.
  bool supports(DType t) const {
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
  // Returns the innermost dim, 0 or 1: the one whose consecutive elements, or pairs, are adjacent.
  int innermost(DType t) const { return int(*(of_.block_dims.rbegin() + (t == DType::kBF16 ? 1 : 0))); }

  // Returns the offsets along a dim: the taps of filter [a, b] start at steps(0)[a] + steps(1)[b].
  std::vector<int64_t> steps(int dim) const {
    std::vector<int64_t> to(of_.padded_sizes[dim]);
    for (int64_t i = 0; i < int64_t(to.size()); ++i) {
      int64_t rest = i, inner = 1;
      for (int k = int(of_.block_sizes.size()) - 1; k >= 0; inner *= of_.block_sizes[k--])
        if (of_.block_dims[k] == dim) to[i] += rest % of_.block_sizes[k] * inner, rest /= of_.block_sizes[k];
      to[i] += rest * of_.strides[dim];
    }
    return to;
  }
  // Returns the stride from one tap to the next, 0 if the taps are not evenly spaced.
  int64_t tap_step() const {
    return of_.sizes[2] == 1 || of_.strides[2] == of_.sizes[3] * of_.strides[3] ? of_.strides[3] : 0;
  }

 private:
  const Blocking of_;
};

// Source filters [A, B, taps], and destination with the offsets of BlockedLayout::steps.
template <class T> struct Filters {
  const T* from;
  int64_t A, B;
  int taps;
  T* to;
  std::vector<int64_t> a_steps, b_steps;
  int64_t tap_step;
};

// The functions below copy filters [a, a + kLanes) for all of B. copy_rows: one tap, B innermost.
void copy_rows(const Filters<float>& f, int64_t a) {
  for (int64_t b = 0; b < f.B; b += kLanes) {
    const float* from = f.from + a * f.B + b;
    float* to = f.to + f.b_steps[b];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i, from += f.B) {
      __builtin_prefetch(from + kPrefetchDistance);
      store(to + f.a_steps[a + i], load(from));
    }
  }
}

// One tap, A innermost.
void transpose_rows(const Filters<float>& f, int64_t a) {
  for (int64_t b = 0; b < f.B; b += kLanes) {
    const float* from = f.from + a * f.B + b;
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) __builtin_prefetch(from + i * f.B + kPrefetchDistance);
    Floats columns[kLanes];
    load_columns(from, f.B, kLanes, columns);
    float* to = f.to + f.a_steps[a];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) store(to + f.b_steps[b + i], columns[i]);
  }
}

// to[t * tap_step + i] = from[i * step + t] for i < kLanes and all taps t.
HWY_INLINE void transpose_taps(const Filters<float>& f, const float* from, int64_t step, float* to) {
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) __builtin_prefetch(from + i * step + kPrefetchDistance);
  Floats by_tap[kMaxTaps];
  load_columns(from, step, f.taps, by_tap);
  for (int t = 0; t < f.taps; ++t) store(to + t * f.tap_step, by_tap[t]);
}

// Several taps, B innermost.
void copy_taps(const Filters<float>& f, int64_t a) {
  for (int64_t i = a; i < a + kLanes; ++i)
    for (int64_t b = 0; b < f.B; b += kLanes)
      transpose_taps(f, f.from + (i * f.B + b) * f.taps, f.taps, f.to + f.a_steps[i] + f.b_steps[b]);
}

// Several taps, A innermost.
void transpose_taps_of_rows(const Filters<float>& f, int64_t a) {
  for (int64_t b = 0; b < f.B; ++b)
    transpose_taps(f, f.from + (a * f.B + b) * f.taps, f.B * f.taps, f.to + f.a_steps[a] + f.b_steps[b]);
}

// transpose_taps for pairs: pair i of tap t is (first[i * step + t], second[i * step + t]).
HWY_INLINE void transpose_pairs(const Filters<bf16>& f, const bf16* first, const bf16* second, int64_t step,
                                bf16* to) {
  const hn::FixedTag<uint16_t, 4> halves;
  const hn::FixedTag<uint32_t, 4> words;
  const auto load_four = [&](const bf16* from) HWY_ATTR {
    return hn::PromoteTo(words, hn::LoadU(halves, reinterpret_cast<const uint16_t*>(from)));
  };
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i)
    __builtin_prefetch(first + i * step + kPrefetchDistance),
        __builtin_prefetch(second + i * step + kPrefetchDistance);
  Floats by_tap[kMaxTaps];
  for (int t = 0; t < f.taps; t += 4) {
    const int at = first_of_four(t, f.taps);
    load_four_columns(
        [&](int row) HWY_ATTR {
          const auto low = load_four(first + row * step + at), high = load_four(second + row * step + at);
          return hn::BitCast(kFourFloats, hn::Or(low, hn::ShiftLeft<16>(high)));
        },
        by_tap + at);
  }
  for (int t = 0; t < f.taps; ++t) store(reinterpret_cast<float*>(to + t * f.tap_step), by_tap[t]);
}

// bf16, pairs of A, B innermost.
void copy_pairs(const Filters<bf16>& f, int64_t a) {
  const int64_t row = f.B * f.taps;
  for (int64_t i = a; i < a + kLanes; i += 2)
    for (int64_t b = 0; b < f.B; b += kLanes) {
      const bf16* from = f.from + i * row + b * f.taps;
      transpose_pairs(f, from, from + row, f.taps, f.to + f.a_steps[i] + f.b_steps[b]);
    }
}

// bf16, pairs of B, A innermost.
void transpose_pairs_of_rows(const Filters<bf16>& f, int64_t a) {
  const int64_t row = f.B * f.taps;
  for (int64_t b = 0; b < f.B; b += 2) {
    const bf16* from = f.from + a * row + b * f.taps;
    transpose_pairs(f, from, from + f.taps, row, f.to + f.a_steps[a] + f.b_steps[b]);
  }
}

// Returns the copy function for these filters. `a_innermost`: A is innermost.
auto select_copy(const Filters<float>& f, bool a_innermost) {
  return f.taps == 1 ? (a_innermost ? &transpose_rows : &copy_rows)
                     : (a_innermost ? &transpose_taps_of_rows : &copy_taps);
}
auto select_copy(const Filters<bf16>&, bool a_innermost) {
  return a_innermost ? &transpose_pairs_of_rows : &copy_pairs;
}

template <class T> bool copy(const Tensor& w, const BlockedLayout& blocks, const Tensor& to) {
  const int64_t taps = w.size(2) * w.size(3), min_taps = sizeof(T) == 2 ? 4 : 1;
  if (taps < min_taps || (taps > 1 && taps < 4) || taps > kMaxTaps) return false;
  const Filters<T> f{w.ptr<T>(),  w.size(0),       w.size(1),       int(taps),
                     to.ptr<T>(), blocks.steps(0), blocks.steps(1), blocks.tap_step()};
  if (f.A % kLanes || f.B % kLanes || f.tap_step == 0) return false;
  const bool a_innermost = blocks.innermost(w.dtype()) == 0;
  const int64_t padding = int64_t(f.a_steps.size()) - f.A;
  if (int64_t(f.b_steps.size()) > f.B || (padding > 0 && (f.taps > 1 || !a_innermost))) return false;
  for (int64_t b = 0; padding > 0 && b < f.B; ++b)
    std::fill_n(f.to + f.a_steps[f.A] + f.b_steps[b], padding, T(0.0f));
  const auto copy = select_copy(f, a_innermost);
  parallel_for(0, f.A / kLanes, 1 + 1024 / (f.B * f.taps), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) copy(f, i * kLanes);
  });
  return true;
}

bool copy_filters(const Tensor& w, const onednn::Desc& layout, const Tensor& to) {
  std::optional<Blocking> blocking = onednn::blocking_of(layout);
  if (!blocking) return false;
  const BlockedLayout blocks(*std::move(blocking));
  if (!blocks.supports(w.dtype())) return false;
  if (w.dtype() == DType::kF32) return copy<float>(w, blocks, to);
  return w.dtype() == DType::kBF16 && copy<bf16>(w, blocks, to);
}

}  // namespace
}  // namespace gradus::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradus::onednn {

bool copy_filters(const Tensor& w, const Desc& layout, const Tensor& to) {
  return GRADUS_DISPATCH(copy_filters)(w, layout, to);
}

}  // namespace gradus::onednn
#endif
