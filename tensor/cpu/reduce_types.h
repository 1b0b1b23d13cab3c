// Accumulator and comparison types of reductions, and the reduction Ops Sum and Extreme (Op: see
// gradus/tensor/cpu/reduce_loops.h).
#pragma once

#include <limits>
#include <type_traits>

#include "gradus/tensor/base/dtype.h"
#include "gradus/tensor/tensor.h"

namespace gradus::cpu {

// Accumulator types: BlockAccumulatorOf within a block (f32 for floats), AccumulatorOf across blocks (f64 for
// floats). Integers are summed as uint64_t, which wraps without undefined behavior.
template <class T>
using BlockAccumulatorOf = std::conditional_t<std::is_same_v<T, double>, double,
                                              std::conditional_t<is_floating(dtype_v<T>), float, uint64_t>>;
template <class T> using AccumulatorOf = std::conditional_t<is_floating(dtype_v<T>), double, uint64_t>;

// Element type of the sum of T: T for floats, int64_t for integers.
template <class T> using SumResult = std::conditional_t<is_floating(dtype_v<T>), T, int64_t>;

// Op: scale * sum(x), accumulated in f64 across blocks. Integers ignore `scale`.
template <class T> struct Sum {
  using BlockAccumulator = BlockAccumulatorOf<T>;
  using Accumulator = AccumulatorOf<T>;
  double scale = 1;
  BlockAccumulator identity() const { return 0; }
  BlockAccumulator accumulate(BlockAccumulator a, T x) const { return a + static_cast<BlockAccumulator>(x); }
  Accumulator combine(Accumulator a, Accumulator b) const { return a + b; }
  Accumulator finish(Accumulator a) const {
    if constexpr (std::is_same_v<Accumulator, double>) return a * scale;
    return a;
  }
};

// The type in which values of T are compared: f32 for 16-bit floats, else T.
template <class T>
using ComparisonType = std::conditional_t<is_floating(dtype_v<T>), BlockAccumulatorOf<T>, T>;

template <class V> constexpr bool is_nan(V v) {
  if constexpr (std::is_floating_point_v<V>) return v != v;
  return false;
}

// Op: the largest element (`largest`) or the smallest one, or NaN if any element is NaN.
template <class T, bool largest> struct Extreme {
  using BlockAccumulator = ComparisonType<T>;
  using Accumulator = BlockAccumulator;
  BlockAccumulator identity() const {
    using L = std::numeric_limits<BlockAccumulator>;
    if constexpr (L::has_infinity) return largest ? -L::infinity() : L::infinity();
    return largest ? L::lowest() : L::max();
  }
  BlockAccumulator join(BlockAccumulator a, BlockAccumulator x) const {
    const BlockAccumulator better = (largest ? x > a : x < a) ? x : a;  // a where x is NaN
    return is_nan(x) ? x : better;
  }
  BlockAccumulator accumulate(BlockAccumulator a, T x) const {
    return join(a, static_cast<BlockAccumulator>(x));
  }
  Accumulator combine(Accumulator a, Accumulator b) const { return join(a, b); }
  Accumulator finish(Accumulator a) const { return a; }
};

// Calls f.operator()<T>() with the C++ type of x's dtype; bool, stored as bytes 0 and 1, is passed as uint8_t.
template <class F> void dispatch_bool_as_u8(const Tensor& x, F&& f) {
  dispatch_all(x.dtype(), [&]<class T>() {
    f.template operator()<std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>>();
  });
}

}  // namespace gradus::cpu
