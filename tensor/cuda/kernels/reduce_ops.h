// How reductions combine elements, as tensor/cpu/reduce_loops.h has it: few steps in Lane, the type of the
// elements' precision, then in Wide (f64 for floats). Integers are summed as unsigned ones, which wrap.
//
// kHalfVectors: a thread takes the columns of half a vector. With those of a whole one nvcc spills registers,
// or takes so many that less than half of a multiprocessor is occupied (tools/gpu_lab/report.sh).
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "gradus/tensor/cuda/kernels/element.h"
#include "gradus/tensor/ops/scalar_math.h"

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
  static constexpr bool kHalfVectors = std::is_same_v<T, int16_t>;
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
  static constexpr bool kHalfVectors =
      sizeof(T) == 1 || std::is_same_v<T, int32_t> || std::is_same_v<T, double>;
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

// Which power the elements' magnitudes are taken to.
enum class Power { kZero, kOne, kTwo, kAny };

// (scale times the sum of |x|^p)^(1/p), or without the root. p = 0 counts nonzeros.
template <class T, Power power> struct Norm : Sum<T> {
  using typename Sum<T>::Lane;
  static constexpr bool kHalfVectors = power == Power::kAny && std::is_same_v<T, float>;
  double p = 2;
  bool root = true;
  __device__ Lane step(Lane a, T x) const {
    const auto v = static_cast<Lane>(x);
    if constexpr (power == Power::kZero) return a + static_cast<Lane>(v != 0);
    if constexpr (power == Power::kOne) return a + m::abs(v);
    if constexpr (power == Power::kTwo) return a + v * v;
    return a + m::pow(m::abs(v), static_cast<Lane>(p));
  }
  __device__ T finish(double a) const {
    a *= this->scale;
    if (!root || power == Power::kZero || power == Power::kOne) return static_cast<T>(a);
    return static_cast<T>(power == Power::kTwo ? m::sqrt(a) : m::pow(a, 1 / p));
  }
};

template <class T, bool largest> struct ExtremeAbs : Extreme<T, largest> {
  __device__ T step(T a, T x) const { return Extreme<T, largest>::step(a, m::abs(x)); }
};

// An element, and its number along n. Wide ones have no bytes between.
template <class V, class N> struct Numbered {
  static constexpr N kNone = std::numeric_limits<N>::max();
  V value;
  N number;
  template <class W, class M> __device__ explicit operator Numbered<W, M>() const {
    return {static_cast<W>(value), number == kNone ? Numbered<W, M>::kNone : number};
  }
};
// The largest or smallest element, the first of equal ones; its number goes to indices[i] for result i. NaN
// beats all numbers.
template <class T> struct Extremum {
  using In = T;
  using Lane = Numbered<compute_t<T>, int32_t>;
  using Wide = Numbered<std::conditional_t<std::is_integral_v<T>, int64_t, double>, int64_t>;
  using Out = T;
  bool largest = true;
  int64_t* indices = nullptr;
  __device__ Lane start() const {
    using V = compute_t<T>;
    using L = std::numeric_limits<V>;
    constexpr V low = L::has_infinity ? static_cast<V>(-L::infinity()) : L::lowest();
    constexpr V high = L::has_infinity ? L::infinity() : L::max();
    Lane none{high, Lane::kNone};
    if (largest) none.value = low;
    return none;
  }
  __device__ Lane step(const Lane& a, T x, int32_t i) const { return better(a, {widen(x), i}); }
  __device__ Wide merge(const Wide& a, const Wide& b) const { return better(a, b); }
  __device__ Wide from_number(const Wide& a, int64_t first) const { return {a.value, first + a.number}; }
  __device__ T finish(const Wide& a, int64_t i) const {
    indices[i] = a.number;
    return convert<T>(a.value);
  }

 private:
  template <class A> __device__ A better(const A& a, const A& b) const {
    const bool nan_a = a.value != a.value, nan_b = b.value != b.value;
    const bool same = a.value == b.value || (nan_a && nan_b);
    const bool beats = (largest ? b.value > a.value : b.value < a.value) || (nan_b && !nan_a);
    return beats || (same && b.number < a.number) ? b : a;
  }
};

// How many elements, their mean, and the sum of their squared distances from it.
struct Spread {
  double n, mean, squares;
};
// The same of few: distances are from the first of them, which is near the others.
// Squares of f32 may leave its range.
template <class T> struct SpreadOfFew {
  T first, sum;
  double squares;
  int n;
  __device__ explicit operator Spread() const {
    if (n == 0) return {0, 0, 0};
    const double off = double(sum) / n, left = squares - off * off * n;
    return {double(n), double(first) + off, left < 0 ? 0 : left};
  }
};

// scale times the sum of squared distances from the mean, or the root of that, in one pass.
// Source: Chan et al., Updating Formulae and a Pairwise Algorithm for Computing Sample Variances.
template <class T> struct Variance {
  using In = T;
  using Lane = SpreadOfFew<T>;
  using Wide = Spread;
  using Out = T;
  double scale = 1;
  bool root = false;
  __device__ Lane start() const { return {0, 0, 0, 0}; }
  __device__ Lane step(Lane a, T x) const {
    if (a.n == 0) a.first = x;
    const T d = x - a.first;
    return {a.first, a.sum + d, m::fma(double(d), double(d), a.squares), a.n + 1};
  }
  __device__ Wide merge(const Wide& a, const Wide& b) const {
    const double n = a.n + b.n, apart = b.mean - a.mean;
    if (n == 0) return a;
    const double part = b.n / n;
    return {n, a.mean + apart * part, a.squares + b.squares + apart * apart * (a.n * part)};
  }
  __device__ T finish(const Wide& a) const {
    return static_cast<T>(root ? m::sqrt(a.squares * scale) : a.squares * scale);
  }
};

}  // namespace gradus::cuda
