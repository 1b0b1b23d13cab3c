// Accumulator and comparison types of reductions, and the reduction Ops Sum and Extreme (Op: see
// gradus/tensor/cpu/reduce_loops.h).
#pragma once

#include <limits>
#include <type_traits>

#include "gradus/tensor/base/dtype.h"
#include "gradus/tensor/tensor.h"

namespace gradus::cpu {

// Accumulator types: LaneOf within a block (f32 for floats), WideOf across blocks (f64 for floats). Integers are
// summed as uint64_t, which wraps without undefined behavior.
template <class T>
using LaneOf = std::conditional_t<std::is_same_v<T, double>, double,
                                  std::conditional_t<is_floating(dtype_v<T>), float, uint64_t>>;
template <class T> using WideOf = std::conditional_t<is_floating(dtype_v<T>), double, uint64_t>;

// Element type of the sum of T: T for floats, int64_t for integers.
template <class T> using SumResult = std::conditional_t<is_floating(dtype_v<T>), T, int64_t>;

// Op: scale * sum(x). Integers ignore `scale`.
template <class T> struct Sum {
  using Lane = LaneOf<T>;
  using Wide = WideOf<T>;
  double scale = 1;
  Lane start() const { return 0; }
  Lane step(Lane a, T x) const { return a + static_cast<Lane>(x); }
  Wide merge(Wide a, Wide b) const { return a + b; }
  Wide finish(Wide a) const {
    if constexpr (std::is_same_v<Wide, double>) return a * scale;
    return a;
  }
};

// The type in which values of T are compared.
template <class T> using OrderOf = std::conditional_t<is_floating(dtype_v<T>), LaneOf<T>, T>;

template <class V> constexpr bool is_nan(V v) {
  if constexpr (std::is_floating_point_v<V>) return v != v;
  return false;
}

// Op: the largest or smallest element, or NaN if any element is NaN.
template <class T, bool largest> struct Extreme {
  using Lane = OrderOf<T>;
  using Wide = Lane;
  Lane start() const {
    using L = std::numeric_limits<Lane>;
    if constexpr (L::has_infinity) return largest ? -L::infinity() : L::infinity();
    return largest ? L::lowest() : L::max();
  }
  Lane join(Lane a, Lane x) const {
    const Lane better = (largest ? x > a : x < a) ? x : a;  // a where x is NaN
    return is_nan(x) ? x : better;
  }
  Lane step(Lane a, T x) const { return join(a, static_cast<Lane>(x)); }
  Wide merge(Wide a, Wide b) const { return join(a, b); }
  Wide finish(Wide a) const { return a; }
};

// Calls f.operator()<T>() with the C++ type of x's dtype; bool, stored as bytes 0 and 1, is passed as uint8_t.
template <class F> void dispatch_bytes(const Tensor& x, F&& f) {
  dispatch_all(x.dtype(), [&]<class T>() {
    f.template operator()<std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>>();
  });
}

}  // namespace gradus::cpu
