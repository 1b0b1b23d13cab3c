// How reductions combine elements, as tensor/cpu/reduce_loops.h has it: few steps in Lane, the type of the
// elements' precision, then in Wide (f64 for floats). Integers are summed as unsigned ones, which wrap.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "gradus/tensor/cuda/kernels/element.h"

namespace gradus::cuda {

template <class T>
using LaneOf = std::conditional_t<std::is_same_v<T, double>, double,
                                  std::conditional_t<std::is_integral_v<T>, uint64_t, float>>;
template <class T> using WideOf = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;

// scale times the sum.
template <class T> struct Sum {
  using In = T;
  using Lane = LaneOf<T>;
  using Wide = WideOf<T>;
  using Out = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
  double scale = 1;
  __device__ Lane start() const { return 0; }
  __device__ Lane step(Lane a, T x) const { return a + static_cast<Lane>(widen(x)); }
  __device__ Wide merge(Wide a, Wide b) const { return a + b; }
  __device__ Out finish(Wide a) const {
    if constexpr (std::is_same_v<Wide, double>)
      return convert<Out>(a * scale);
    else
      return static_cast<Out>(a);
  }
};

template <class T> struct Prod {
  using In = T;
  using Lane = WideOf<T>;  // a product of few f32 leaves their range easily
  using Wide = WideOf<T>;
  using Out = T;
  __device__ Lane start() const { return 1; }
  __device__ Lane step(Lane a, T x) const { return a * static_cast<Lane>(x); }
  __device__ Wide merge(Wide a, Wide b) const { return a * b; }
  __device__ Out finish(Wide a) const { return static_cast<Out>(a); }
};

// The largest or smallest element; NaN when there is one.
template <class T, bool largest> struct Extreme {
  using In = T;
  using Lane = T;
  using Wide = T;
  using Out = T;
  __device__ T start() const {
    using L = std::numeric_limits<T>;
    if constexpr (L::has_infinity) return largest ? -L::infinity() : L::infinity();
    return largest ? L::lowest() : L::max();
  }
  __device__ T step(T a, T x) const {
    const bool better = largest ? x > a : x < a;
    return better || x != x ? x : a;
  }
  __device__ T merge(T a, T b) const { return step(a, b); }
  __device__ T finish(T a) const { return a; }
};

// Of bytes 0 and 1: whether any, or all, are 1.
template <bool any> struct Logical : Extreme<uint8_t, any> {
  __device__ uint8_t finish(uint8_t a) const { return a != 0; }
};

// scale times the sum of squares, and its root.
template <class T> struct Norm : Sum<T> {
  using typename Sum<T>::Lane;
  bool root = true;
  __device__ Lane step(Lane a, T x) const { return a + static_cast<Lane>(x) * static_cast<Lane>(x); }
  __device__ T finish(double a) const {
    a *= this->scale;
    return static_cast<T>(root ? std::sqrt(a) : a);
  }
};

}  // namespace gradus::cuda
