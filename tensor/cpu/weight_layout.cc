#include "gradus/tensor/cpu/weight_layout.h"

#include <cstring>
#include <vector>

#include "gradus/tensor/cpu/register_transpose.h"
#include "gradus/tensor/parallel.h"

// Note [Layouts of filters]
// oneDNN keeps filters w[A][B][taps] in blocks, say Acdb48a: for each 48 of A, for each tap, for each b, the
// 48 numbers of A side by side; where 48 does not divide A there are zeros. Either A or B is innermost, in
// blocks of a multiple of 16, so that 16 neighbours along it are one register. B's neighbours are so in w
// too, if there is one tap; all else is read as 16 x 16 numbers that are transposed in registers: 16 of A by
// 16 of B for one tap, and 16 filters by their taps for up to 16 of them.

namespace gradus::onednn {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kAhead = 16 * kLanes;  // each row of w is a stream of its own

#define GRADUS_AVX512 gnu::target("avx512f")

// A blocked layout of [A, B, KH, KW].
class Blocks {
 public:
  explicit Blocks(const Desc& d) : md_(d.data) {}

  // Each of A and B is cut at most once, and the innermost block is of whole registers.
  bool serves() const {
    const auto& b = md_.format_desc.blocking;
    if (md_.ndims != 4 || md_.format_kind != dnnl_blocked || md_.offset0 != 0) return false;
    if (b.inner_nblks < 1 || b.inner_nblks > 2) return false;
    for (int i = 0; i < b.inner_nblks; ++i)
      if (b.inner_idxs[i] > 1 || (i > 0 && b.inner_idxs[i] == b.inner_idxs[0])) return false;
    return b.inner_blks[b.inner_nblks - 1] % kLanes == 0;
  }
  // The dim whose neighbours lie together: 0 or 1.
  int innermost() const {
    return int(md_.format_desc.blocking.inner_idxs[md_.format_desc.blocking.inner_nblks - 1]);
  }

  // Where the numbers of [a, b] start: steps(0)[a] + steps(1)[b].
  std::vector<int64_t> steps(int dim) const {
    const auto& blocks = md_.format_desc.blocking;
    int64_t size = 1, inner = 1;  // of this dim's block, and of what lies within it
    for (int i = blocks.inner_nblks - 1; i >= 0 && size == 1; --i)
      (blocks.inner_idxs[i] == dim ? size : inner) *= blocks.inner_blks[i];
    std::vector<int64_t> to(md_.padded_dims[dim]);
    for (int64_t i = 0; i < int64_t(to.size()); ++i)
      to[i] = i / size * blocks.strides[dim] + i % size * inner;
    return to;
  }
  // From one tap to the next; 0 if they are not evenly spaced.
  int64_t tap_step() const {
    const auto* s = md_.format_desc.blocking.strides;
    return md_.dims[2] == 1 || s[2] == md_.dims[3] * s[3] ? s[3] : 0;
  }

 private:
  const dnnl_memory_desc_t& md_;
};

// Filters [A, B, taps] and where each goes.
struct Filters {
  const float* from;
  int64_t A, B, taps;
  float* to;
  std::vector<int64_t> a_steps, b_steps;
  int64_t tap_step;
};

// 16 of A, from a: one tap, B innermost.
[[GRADUS_AVX512]] void copy_rows(const Filters& f, int64_t a) {
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

// 16 of A, from a: one tap, A innermost.
[[GRADUS_AVX512]] void transpose_rows(const Filters& f, int64_t a) {
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

// 16 filters that lie `step` apart, all taps, to 16 neighbours for each tap.
[[GRADUS_AVX512]] inline void transpose_taps(const Filters& f, const float* from, int64_t step, float* to) {
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

// 16 of A, from a: some taps, B innermost.
[[GRADUS_AVX512]] void copy_taps(const Filters& f, int64_t a) {
  for (int64_t i = a; i < a + kLanes; ++i)
    for (int64_t b = 0; b < f.B; b += kLanes)
      transpose_taps(f, f.from + (i * f.B + b) * f.taps, f.taps, f.to + f.a_steps[i] + f.b_steps[b]);
}

// 16 of A, from a: some taps, A innermost.
[[GRADUS_AVX512]] void transpose_taps_of_rows(const Filters& f, int64_t a) {
  for (int64_t b = 0; b < f.B; ++b)
    transpose_taps(f, f.from + (a * f.B + b) * f.taps, f.B * f.taps, f.to + f.a_steps[a] + f.b_steps[b]);
}

}  // namespace

bool copy_filters(const Tensor& w, const Desc& plain, const Desc& want, const Tensor& to) {
  static const bool has_avx512 = __builtin_cpu_supports("avx512f");
  const Blocks blocks(want);
  if (!has_avx512 || w.dtype() != DType::kF32 || plain.data.ndims != 4 || !blocks.serves()) return false;
  const Filters f{w.ptr<float>(),  w.size(0),       w.size(1),       w.size(2) * w.size(3),
                  to.ptr<float>(), blocks.steps(0), blocks.steps(1), blocks.tap_step()};
  if (f.A % kLanes || f.B % kLanes || f.taps < 1 || f.taps > kLanes || f.tap_step == 0) return false;
  const bool across = blocks.innermost() == 0;
  const int64_t padding = int64_t(f.a_steps.size()) - f.A;
  if (int64_t(f.b_steps.size()) > f.B || (padding > 0 && (f.taps > 1 || !across))) return false;
  for (int64_t b = 0; padding > 0 && b < f.B; ++b)
    std::memset(f.to + f.a_steps[f.A] + f.b_steps[b], 0, padding * sizeof(float));
  const auto copy =
      f.taps == 1 ? (across ? &transpose_rows : &copy_rows) : (across ? &transpose_taps_of_rows : &copy_taps);
  parallel_for(0, f.A / kLanes, 1 + 1024 / (f.B * f.taps), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) copy(f, i * kLanes);
  });
  return true;
}

}  // namespace gradus::onednn
