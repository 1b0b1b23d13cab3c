// Loads and stores of matrix columns: lane r of a vector is an element of row r of a row-major matrix in memory.
// Built from 4 x 4 transposes in registers.
#if defined(GRADUS_TENSOR_CPU_TRANSPOSE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADUS_TENSOR_CPU_TRANSPOSE_INL_H
#undef GRADUS_TENSOR_CPU_TRANSPOSE_INL_H
#else
#define GRADUS_TENSOR_CPU_TRANSPOSE_INL_H
#endif

#include <cstdint>

#include "gradus/tensor/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradus::cpu::HWY_NAMESPACE {

constexpr hn::FixedTag<float, 4> kFourFloats;

// Returns the vector of D whose 4-float block b is f(first + b).
template <class D, class F> HWY_INLINE hn::Vec<D> make_of_blocks(D d, const F& f, int first = 0) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return f(first);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, make_of_blocks(half, f, first + int(hn::MaxLanes(half)) / 4),
                       make_of_blocks(half, f, first));
  }
}
// Stores the 4-float block b of v at to[b * step].
template <class D> HWY_INLINE void store_blocks(D d, hn::Vec<D> v, float* to, int64_t step) {
  if constexpr (hn::MaxLanes(d) == 4) {
    hn::StoreU(v, d, to);
  } else {
    const hn::Half<D> half;
    store_blocks(half, hn::LowerHalf(half, v), to, step);
    store_blocks(half, hn::UpperHalf(half, v), to + int64_t(hn::MaxLanes(half)) / 4 * step, step);
  }
}

// Transposes block by block: the b-th 4-float blocks of from[0..3] are the rows of a 4 x 4 matrix, and the b-th
// blocks of to[0..3] its columns.
HWY_INLINE void transpose_blocks(const Floats* from, Floats* to) {
  const hn::RepartitionToWide<FloatTag> pairs;
  const auto a = hn::BitCast(pairs, hn::InterleaveLower(kFloats, from[0], from[1])),
             b = hn::BitCast(pairs, hn::InterleaveUpper(kFloats, from[0], from[1])),
             c = hn::BitCast(pairs, hn::InterleaveLower(kFloats, from[2], from[3])),
             d = hn::BitCast(pairs, hn::InterleaveUpper(kFloats, from[2], from[3]));
  to[0] = hn::BitCast(kFloats, hn::InterleaveLower(pairs, a, c));
  to[1] = hn::BitCast(kFloats, hn::InterleaveUpper(pairs, a, c));
  to[2] = hn::BitCast(kFloats, hn::InterleaveLower(pairs, b, d));
  to[3] = hn::BitCast(kFloats, hn::InterleaveUpper(pairs, b, d));
}

// Returns the first of the four columns that are loaded together for column i. The last group of four overlaps the
// previous one if `count` is not a multiple of 4.
constexpr int first_of_four(int i, int count) { return i + 4 <= count ? i : count - 4; }

// columns[t][row] = read(row)[t] for t < 4 and row < kLanes. read(row) returns 4 floats.
template <class Read> HWY_INLINE void load_four_columns(const Read& read, Floats* columns) {
  Floats rows[4];
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r)
    rows[r] = make_of_blocks(kFloats, [&](int block) HWY_ATTR { return read(4 * block + r); });
  transpose_blocks(rows, columns);
}

// columns[t][row] = from[row * step + t] for t < count and row < kLanes. Requires count >= 4.
template <class T> HWY_INLINE void load_columns(const T* from, int64_t step, int count, Floats* columns) {
#pragma GCC unroll 4
  for (int i = 0; i < count; i += 4) {
    const T* const first = from + first_of_four(i, count);
    load_four_columns([&](int row) HWY_ATTR { return load(kFourFloats, first + row * step); },
                      columns + first_of_four(i, count));
  }
}

// to[row * step + t] = columns[t][row] for t < count and row < kLanes. Requires count >= 4.
HWY_INLINE void store_columns(const Floats* columns, int count, float* to, int64_t step) {
#pragma GCC unroll 4
  for (int i = 0; i < count; i += 4) {
    const int first = first_of_four(i, count);
    Floats rows[4];
    transpose_blocks(columns + first, rows);
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) store_blocks(kFloats, rows[r], to + r * step + first, 4 * step);
  }
}

}  // namespace gradus::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
