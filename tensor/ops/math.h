// Functors (functor.h) of exponential, logarithmic, trigonometric, hyperbolic and special functions:
// functions of one element of type T (float for 16-bit floats, or double), computed by gradus::m
// (scalar_math.h). kHalfVectors and needs_fallback: functor.h.
#pragma once

#include "gradus/tensor/ops/elementwise.h"
#include "gradus/tensor/ops/special_functions.h"

namespace gradus::functors {

GRADUS_UNARY_FUNCTOR(Exp, OnFloats, "exp", T, m::exp(x));
GRADUS_UNARY_FUNCTOR(Exp2, OnFloats, "exp2", T, m::exp2(x));
GRADUS_UNARY_FUNCTOR(Expm1, OnFloats, "expm1", T, m::expm1(x));
GRADUS_UNARY_FUNCTOR(Log, OnFloats, "log", T, m::log(x));
GRADUS_UNARY_FUNCTOR(Log2, OnFloats, "log2", T, m::log2(x));
GRADUS_UNARY_FUNCTOR(Log10, OnFloats, "log10", T, m::log10(x));
GRADUS_UNARY_FUNCTOR(Log1p, OnFloats, "log1p", T, m::log1p(x));
// log(e^a + e^b) without overflow.
struct LogAddExp : OnFloats {
  static constexpr const char* name = "logaddexp";
  template <class T> GRADUS_HD T operator()(T a, T b) const {
    const T large = a > b ? a : b, difference = -m::abs(a - b);
    return a == b && m::abs(a) == std::numeric_limits<T>::infinity() ? a
           : a != a || b != b                                        ? a + b
                                                                     : large + m::log1p(m::exp(difference));
  }
};
// x log y, 0 where x is 0 (unless y is NaN).
struct Xlogy : OnFloats {
  static constexpr const char* name = "xlogy";
  template <class T> GRADUS_HD T operator()(T x, T y) const {
    return x == T(0) && y == y ? T(0) : x * m::log(y);
  }
};
// Base of sin, cos and tan in f32. needs_fallback: arguments beyond the exact range reduction of m::sin,
// m::cos and m::tan, infinities and NaN.
struct OnAngles : OnFloats {
  GRADUS_HD bool needs_fallback(float x) const { return !(m::abs(x) < 1e15f); }
};
struct Sin : OnAngles {
  static constexpr const char* name = "sin";
  static constexpr DType kHalfVectors[] = {DType::kF16, DType::kBF16};
  template <class T> GRADUS_HD T operator()(T x) const { return m::sin(x); }
  GRADUS_HD float fallback(float x) const { return std::sin(x); }
};
struct Cos : OnAngles {
  static constexpr const char* name = "cos";
  static constexpr DType kHalfVectors[] = {DType::kF16, DType::kBF16};
  template <class T> GRADUS_HD T operator()(T x) const { return m::cos(x); }
  GRADUS_HD float fallback(float x) const { return std::cos(x); }
};
struct Tan : OnAngles {
  static constexpr const char* name = "tan";
  template <class T> GRADUS_HD T operator()(T x) const { return m::tan(x); }
  GRADUS_HD float fallback(float x) const { return std::tan(x); }
};
GRADUS_UNARY_FUNCTOR(Asin, OnFloats, "asin", T, m::asin(x));
GRADUS_UNARY_FUNCTOR(Acos, OnFloats, "acos", T, m::acos(x));
GRADUS_UNARY_FUNCTOR(Atan, OnFloats, "atan", T, m::atan(x));
struct Atan2 : OnFloats {
  static constexpr const char* name = "atan2";
  template <class T> GRADUS_HD T operator()(T y, T x) const {
    // atan of the ratio in the first octant, then reflections into the octant of (x, y).
    const T a = m::abs(x), b = m::abs(y);
    const T small = a < b ? a : b, large = a < b ? b : a;
    const T ratio = large == T(0) ? T(0) : small == large ? T(1) : small / large;
    T r = m::atan(ratio);
    r = b > a ? T(1.57079632679489662) - r : r;
    r = std::signbit(x) ? T(3.14159265358979324) - r : r;
    return x != x || y != y ? x + y : m::copysign(r, y);
  }
};
GRADUS_UNARY_FUNCTOR(Sinh, OnFloats, "sinh", T, m::sinh(x));
GRADUS_UNARY_FUNCTOR(Cosh, OnFloats, "cosh", T, m::cosh(x));
GRADUS_UNARY_FUNCTOR(Asinh, OnFloats, "asinh", T, m::asinh(x));
GRADUS_UNARY_FUNCTOR(Acosh, OnFloats, "acosh", T, m::acosh(x));
GRADUS_UNARY_FUNCTOR(Atanh, OnFloats, "atanh", T, m::atanh(x));
struct Erf : OnFloats {
  static constexpr const char* name = "erf";
  static constexpr DType kHalfVectors[] = {DType::kF64};
  template <class T> GRADUS_HD T operator()(T x) const { return m::erf(x); }
};
GRADUS_UNARY_FUNCTOR(Erfc, OnFloats, "erfc", T, m::erfc(x));
// Erfinv, Lgamma and Polygamma compute in double.
GRADUS_UNARY_FUNCTOR(Erfinv, OnFloats, "erfinv", T, T(m::erfinv(x)));
struct Lgamma : OnFloats {
  static constexpr const char* name = "lgamma";
  template <class T> GRADUS_HD T operator()(T x) const {
#if defined(__CUDA_ARCH__)
    return T(::lgamma(double(x)));
#else
    int sign;  // lgamma_r, because lgamma() writes the global variable signgam
    return T(::lgamma_r(double(x), &sign));
#endif
  }
};
struct Polygamma : OnFloats {
  static constexpr const char* name = "polygamma";
  int64_t n = 0;
  template <class T> GRADUS_HD T operator()(T x) const { return T(m::polygamma(int(n), x)); }
};

// The slots of these functors, which each device fills.
using MathSlots = raw::SlotList<raw::Unary<Exp>, raw::Unary<Exp2>, raw::Unary<Expm1>, raw::Unary<Log>,
                                raw::Unary<Log2>, raw::Unary<Log10>, raw::Unary<Log1p>,
                                raw::Binary<LogAddExp>, raw::Binary<Xlogy>, raw::Unary<Erf>, raw::Unary<Erfc>,
                                raw::Unary<Erfinv>, raw::Unary<Lgamma>, raw::Unary<Polygamma>>;
using TrigonometrySlots =
    raw::SlotList<raw::Unary<Sin>, raw::Unary<Cos>, raw::Unary<Tan>, raw::Unary<Asin>, raw::Unary<Acos>,
                  raw::Unary<Atan>, raw::Binary<Atan2>, raw::Unary<Sinh>, raw::Unary<Cosh>, raw::Unary<Asinh>,
                  raw::Unary<Acosh>, raw::Unary<Atanh>>;

}  // namespace gradus::functors
