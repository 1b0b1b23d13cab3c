// Reduction ops for the CUDA kernels of reduce.h (device functors): sum, product, extrema, norms, argmax and
// argmin, variance. An op defines how elements are combined:
//   In, Lane, Wide, Out     types: elements, short partial results of a thread, long partial results, results
//   start()                 the neutral element
//   step(a, x)              a Lane combined with an element; step(a, x, i) also gets the element's index
//   merge(a, b)             two Wides combined
//   offset_index(a, i)      indexed ops: adds i to the index in a Wide
//   finish(a)               the result; finish(a, i) also gets the result's index
// At most 16 steps are taken in Lane (the elements' precision), before the Lane is converted to Wide (f64 for
// floats). Integers are summed as unsigned numbers, which wrap.
//
// Element types T: Sum and Extremum take all but bool (bools are uint8_t); Extreme also no 16-bit floats;
// Prod f32, f64 and i64; Norm, ExtremeAbs and Variance f32 and f64.
//
// kHalfVectors: if columns are reduced, a thread has half a vector of columns. With a whole vector nvcc
// spills registers, or uses so many that less than half of a multiprocessor is occupied
// (tools/gpu_lab/report.sh).
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

// scale * sum x. Integers ignore the scale, and give i64.
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

// The product of the elements.
template <class T> struct Prod {
  using In = T;
  using Lane = WideOf<T>;  // a product of few f32 may overflow f32
  using Wide = WideOf<T>;
  using Out = T;
  __device__ Lane start() const { return 1; }
  __device__ Lane step(Lane a, T x) const { return a * static_cast<Lane>(x); }
  __device__ Wide merge(Wide a, Wide b) const { return a * b; }
  __device__ Out finish(Wide a) const { return static_cast<Out>(a); }
};

// The largest or smallest element; NaN if an element is NaN.
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

// any and all of bools, as bytes 0 and 1.
template <bool any> struct Logical : Extreme<uint8_t, any> {
  __device__ uint8_t finish(uint8_t a) const { return a != 0; }
};

// The exponent p of a norm; kAny: another p, known at run time.
enum class Power { kZero, kOne, kTwo, kAny };

// (scale * sum |x|^p)^(1/p), without the root if `root` is false. p = 0 counts the nonzero elements.
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

// The largest or smallest |x|, for the norms of order infinity.
template <class T, bool largest> struct ExtremeAbs : Extreme<T, largest> {
  __device__ T step(T a, T x) const { return Extreme<T, largest>::step(a, m::abs(x)); }
};

// An element, and its index along the reduced dim; kNone: no element yet. A Wide has no padding bytes,
// since warps exchange it as 64-bit words.
template <class V, class N> struct IndexedValue {
  static constexpr N kNone = std::numeric_limits<N>::max();
  V value;
  N number;
  template <class W, class M> __device__ explicit operator IndexedValue<W, M>() const {
    return {static_cast<W>(value), number == kNone ? IndexedValue<W, M>::kNone : number};
  }
};
// max and min with indices: the largest or smallest element, the first of equal ones. The element's index is
// written to indices[i] for result i. NaN counts as the extremum. Lane indices are relative to a piece;
// offset_index adds the piece's first index.
template <class T> struct Extremum {
  using In = T;
  using Lane = IndexedValue<compute_t<T>, int32_t>;
  using Wide = IndexedValue<std::conditional_t<std::is_integral_v<T>, int64_t, double>, int64_t>;
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
  __device__ Wide offset_index(const Wide& a, int64_t first) const { return {a.value, first + a.number}; }
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

// The number of elements, their mean, and the sum of their squared differences from the mean.
struct VarianceState {
  double n, mean, squares;
};
// The partial result of few elements: the first element, the sum of the differences from it, which keeps a
// large mean from costing precision, and the sum of their squares, in f64, since f32 may overflow.
template <class T> struct VarianceLane {
  T first, sum;
  double squares;
  int n;
  __device__ explicit operator VarianceState() const {
    if (n == 0) return {0, 0, 0};
    const double off = double(sum) / n, left = squares - off * off * n;
    return {double(n), double(first) + off, left < 0 ? 0 : left};
  }
};

// scale * sum (x - mean)^2, or its square root, in one pass.
// Source: Chan et al., Updating Formulae and a Pairwise Algorithm for Computing Sample Variances.
template <class T> struct Variance {
  using In = T;
  using Lane = VarianceLane<T>;
  using Wide = VarianceState;
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
