// Raw element-wise arithmetic without autograd (add, mul, pow, remainder, clamp, lerp, ...): functors, ops,
// and in-place ops. Users call gradus/autograd/ops/arithmetic.h. Operands broadcast; results keep the
// operands' common layout.
//
// A functor computes one element of type T. Its base has the accepted types (functor.h): OnAll, OnNumbers (no
// bool), OnFloats (integers are converted to the default dtype), OnFractions (integers are returned
// unchanged). 16-bit floats are computed in f32. W<T> is T, or the unsigned type of a signed T, so that
// overflow wraps. kHalfVectors and needs_fallback: functor.h.
#pragma once

#include "gradus/tensor/ops/elementwise.h"

namespace gradus::functors {

GRADUS_BINARY_FUNCTOR(Add, OnAll, "add", T, T(W<T>(a) + W<T>(b)));
GRADUS_BINARY_FUNCTOR(Sub, OnNumbers, "sub", T, T(W<T>(a) - W<T>(b)));
GRADUS_BINARY_FUNCTOR(Mul, OnAll, "mul", T, T(W<T>(a) * W<T>(b)));
struct Div : OnFloats {
  static constexpr const char* name = "div";
  static constexpr DType kHalfVectors[] = {DType::kF64};
  template <class T> GRADUS_HD T operator()(T a, T b) const { return a / b; }
};
// a + alpha b
struct AddScaled : OnNumbers {
  static constexpr const char* name = "add";
  double alpha;
  int64_t integer_alpha;  // alpha for integer types
  template <class T> GRADUS_HD T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>)
      return m::fma(T(alpha), b, a);
    else
      return T(W<T>(a) + W<T>(T(integer_alpha)) * W<T>(b));
  }
};
// x + value a b, x + value a / b
struct AddCMul : OnFloats {
  static constexpr const char* name = "addcmul";
  double value;
  template <class T> GRADUS_HD T operator()(T x, T a, T b) const { return m::fma(T(value) * a, b, x); }
};
struct AddCDiv : OnFloats {
  static constexpr const char* name = "addcdiv";
  static constexpr DType kHalfVectors[] = {DType::kBF16};
  double value;
  template <class T> GRADUS_HD T operator()(T x, T a, T b) const { return m::fma(T(value), a / b, x); }
};
// a^b. Negative powers of integers round toward zero; positive ones wrap on overflow.
struct Pow : OnNumbers {
  static constexpr const char* name = "pow";
  template <class T> GRADUS_HD T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return m::pow(a, b);
    } else {
      if constexpr (std::is_signed_v<T>)
        if (b < 0) return a == 1 ? T(1) : a == -1 ? (b % 2 ? T(-1) : T(1)) : T(0);
      // Unsigned arithmetic, which wraps on overflow.
      uint64_t result = 1, base = static_cast<uint64_t>(a);
      for (uint64_t e = static_cast<uint64_t>(b); e; e >>= 1, base *= base)
        if (e & 1) result *= base;
      return static_cast<T>(result);
    }
  }
};
// The base of Remainder and Fmod. In f32 both compute a - b * q in f64: the rounded quotient q may be too
// large by one, which the sign of the result shows and corrects; the product is exact. needs_fallback:
// quotients of about 2^52 or more, infinities and NaN, for which fallback() uses the C library's fmod.
struct OnQuotients : OnNumbers {
  GRADUS_HD bool needs_fallback(float a, float b) const {
    const float v = m::abs(b);
    return !((m::abs(a) < 4e15f * v) & (v < std::numeric_limits<float>::infinity()));
  }
};
// The remainder with the sign of the divisor. For integers 0 if the divisor is 0.
struct Remainder : OnQuotients {
  static constexpr const char* name = "remainder";
  template <class T> GRADUS_HD T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, float>) {
      const double u = a, v = b;
      const double r = m::fma(-std::floor(u / v), v, u);
      return float(((r < 0) != (v < 0)) & (r != 0) ? r + v : r);
    } else {
      return fallback(a, b);
    }
  }
  template <class T> GRADUS_HD T fallback(T a, T b) const {
    T r;
    if constexpr (std::is_floating_point_v<T>)
      r = std::fmod(a, b);
    else if constexpr (std::is_signed_v<T>)
      r = b == 0 || b == -1 ? T(0) : T(a % b);
    else
      r = b == 0 ? T(0) : T(a % b);
    return r != 0 && (r < 0) != (b < 0) ? T(r + b) : r;
  }
};
struct Fmod : OnQuotients {
  static constexpr const char* name = "fmod";
  template <class T> GRADUS_HD T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, float>) {
      const double u = a, v = m::abs(double(b));
      double r = m::fma(-std::trunc(u / v), v, u);
      r = (r < 0) != (u < 0) && r != 0 ? r + (u < 0 ? -v : v) : r;
      r = m::abs(r) >= v ? r - (u < 0 ? -v : v) : r;
      return m::copysign(float(r), a);
    } else {
      return fallback(a, b);
    }
  }
  template <class T> GRADUS_HD T fallback(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>)
      return std::fmod(a, b);
    else if constexpr (std::is_signed_v<T>)
      return b == 0 || b == -1 ? T(0) : T(a % b);
    else
      return b == 0 ? T(0) : T(a % b);
  }
};
// a / b rounded down. For integers 0 if the divisor is 0.
struct FloorDivide : OnNumbers {
  static constexpr const char* name = "floor_divide";
  template <class T> GRADUS_HD T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      if (b == T(0)) return a / b;
      T r = std::fmod(a, b), q = (a - r) / b;
      if (r != T(0) && (r < T(0)) != (b < T(0))) q -= T(1);
      if (q == T(0)) return m::copysign(T(0), a / b);
      const T down = std::floor(q);
      return q - down > T(0.5) ? down + T(1) : down;
    } else if constexpr (std::is_signed_v<T>) {
      if (b == 0) return T(0);
      if (b == -1) return T(-W<T>(a));
      return T(a / b - (a % b != 0 && (a < 0) != (b < 0)));
    } else {
      return b == 0 ? T(0) : T(a / b);
    }
  }
};
// a / b rounded toward 0. For integers 0 if the divisor is 0.
struct TruncDivide : OnNumbers {
  static constexpr const char* name = "div";
  template <class T> GRADUS_HD T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>)
      return std::trunc(a / b);
    else if constexpr (std::is_signed_v<T>)
      return b == 0 ? T(0) : b == -1 ? T(-W<T>(a)) : T(a / b);
    else
      return b == 0 ? T(0) : T(a / b);
  }
};
// NaN on either side gives NaN: a comparison with NaN is false.
GRADUS_BINARY_FUNCTOR(Maximum, OnAll, "maximum", T, a > b || a != a ? a : b);
GRADUS_BINARY_FUNCTOR(Minimum, OnAll, "minimum", T, a < b || a != a ? a : b);
struct Clamp : OnNumbers {
  static constexpr const char* name = "clamp";
  double low, high;
  int64_t integer_low, integer_high;  // bounds for integer types
  template <class T> GRADUS_HD T operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>) {
      const T raised = x < T(low) ? T(low) : x;
      return raised > T(high) ? T(high) : raised;
    } else {  // compared in 64 bits: the bounds may be out of T's range
      const int64_t raised = x < integer_low ? integer_low : x;
      return T(raised > integer_high ? integer_high : raised);
    }
  }
};
// dy if low < x < high, else 0. An infinite bound always holds. For NaN x the result is 0 unless both bounds
// are infinite.
struct ClampBackward : OnFloats {
  static constexpr const char* name = "clamp_backward";
  double low, high;
  template <class T> GRADUS_HD T operator()(T dy, T x) const {
    const bool above = x > T(low) || low == -INFINITY, below = x < T(high) || high == INFINITY;
    return above && below ? dy : T(0);
  }
};
// a + weight (b - a), exact for weights 0 and 1.
struct LerpTensor : OnFloats {
  static constexpr const char* name = "lerp";
  template <class T> GRADUS_HD T operator()(T a, T b, T weight) const {
    return m::abs(weight) < T(0.5) ? m::fma(weight, b - a, a) : m::fma(weight - T(1), b - a, b);
  }
};
struct Lerp : OnFloats {
  static constexpr const char* name = "lerp";
  double weight;
  template <class T> GRADUS_HD T operator()(T a, T b) const { return LerpTensor{}(a, b, T(weight)); }
};
GRADUS_UNARY_FUNCTOR(Neg, OnNumbers, "neg", T, T(-W<T>(x)));
struct Abs : OnNumbers {
  static constexpr const char* name = "abs";
  template <class T> GRADUS_HD T operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>)
      return m::abs(x);
    else
      return x < T(0) ? T(-W<T>(x)) : x;
  }
};
GRADUS_UNARY_FUNCTOR(Sign, OnNumbers, "sign", T, T((T(0) < x) - (x < T(0))));
GRADUS_UNARY_FUNCTOR(Square, OnNumbers, "square", T, T(W<T>(x) * W<T>(x)));
GRADUS_UNARY_FUNCTOR(Reciprocal, OnFloats, "reciprocal", T, T(1) / x);
GRADUS_UNARY_FUNCTOR(Sqrt, OnFloats, "sqrt", T, m::sqrt(x));
GRADUS_UNARY_FUNCTOR(Rsqrt, OnFloats, "rsqrt", T, T(1) / m::sqrt(x));
struct Hypot : OnFloats {
  static constexpr const char* name = "hypot";
  static constexpr DType kHalfVectors[] = {DType::kF64};
  template <class T> GRADUS_HD T operator()(T a, T b) const {
    const T x = m::abs(a), y = m::abs(b), large = x > y ? x : y, small = x > y ? y : x;
    const T t = large > T(0) && large < std::numeric_limits<T>::infinity() ? small / large : T(0);
    const T r = large * m::sqrt(T(1) + t * t);
    return x == std::numeric_limits<T>::infinity() || y == std::numeric_limits<T>::infinity()
               ? std::numeric_limits<T>::infinity()
           : a != a || b != b ? a + b
                              : r;
  }
};
GRADUS_BINARY_FUNCTOR(Copysign, OnFloats, "copysign", T, m::copysign(a, b));
struct Heaviside : OnNumbers {
  static constexpr const char* name = "heaviside";
  template <class T> GRADUS_HD T operator()(T x, T at_zero) const {
    return x != x ? x : x == T(0) ? at_zero : T(x > T(0));
  }
};
GRADUS_UNARY_FUNCTOR(Floor, OnFractions, "floor", T, std::floor(x));
GRADUS_UNARY_FUNCTOR(Ceil, OnFractions, "ceil", T, std::ceil(x));
GRADUS_UNARY_FUNCTOR(Round, OnFractions, "round", T, std::rint(x));
GRADUS_UNARY_FUNCTOR(Trunc, OnFractions, "trunc", T, std::trunc(x));

// The slots of these functors, which each device fills.
using ArithmeticSlots =
    raw::SlotList<raw::Binary<Add>, raw::Binary<Sub>, raw::Binary<Mul>, raw::Binary<Div>,
                  raw::Binary<AddScaled>, raw::Ternary<AddCMul>, raw::Ternary<AddCDiv>, raw::Binary<Pow>,
                  raw::Binary<Maximum>, raw::Binary<Minimum>, raw::Ternary<LerpTensor>, raw::Binary<Lerp>,
                  raw::Unary<Neg>, raw::Unary<Abs>, raw::Unary<Sign>, raw::Unary<Square>,
                  raw::Unary<Reciprocal>, raw::Unary<Sqrt>, raw::Unary<Rsqrt>, raw::Binary<Hypot>>;
using RoundingSlots =
    raw::SlotList<raw::Binary<Remainder>, raw::Binary<Fmod>, raw::Binary<FloorDivide>,
                  raw::Binary<TruncDivide>, raw::Unary<Floor>, raw::Unary<Ceil>, raw::Unary<Round>,
                  raw::Unary<Trunc>, raw::Unary<Clamp>, raw::Binary<ClampBackward>, raw::Binary<Copysign>,
                  raw::Binary<Heaviside>>;

}  // namespace gradus::functors

namespace gradus::raw {

// Element-wise results with broadcasting and type promotion.
// Errors: ShapeError, DTypeError (also for a fractional alpha of integers), DeviceError; ValueError for an
// alpha that does not fit into the dtype, and for bounds of clamp that are NaN or have no value of an integer
// dtype between them.
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);  // integers give the default dtype
Tensor pow(const Tensor& a, const Tensor& b);
Tensor remainder(const Tensor& a, const Tensor& b);  // with b's sign
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& a, const Tensor& b, Number alpha);    // a + alpha b
Tensor lerp(const Tensor& a, const Tensor& b, double weight);  // a + weight (b - a)
Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight);
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value);  // x + value a b
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, double value);  // x + value a / b
// Has x's dtype; bounds of integers are truncated. `high` if low > high.
Tensor clamp(const Tensor& x, Number low, Number high);

// The same with a number as one operand.
inline Tensor add(const Tensor& a, Number b) { return raw::add(a, operand(b, a)); }
inline Tensor sub(const Tensor& a, Number b) { return raw::sub(a, operand(b, a)); }
inline Tensor sub(Number a, const Tensor& b) { return raw::sub(operand(a, b), b); }
inline Tensor mul(const Tensor& a, Number b) { return raw::mul(a, operand(b, a)); }
// The number is a double: div of integers gives fractions.
inline Tensor div(const Tensor& a, Number b) { return raw::div(a, operand(b.to_double(), a)); }
inline Tensor div(Number a, const Tensor& b) { return raw::div(operand(a.to_double(), b), b); }
inline Tensor pow(const Tensor& a, Number b) { return raw::pow(a, operand(b, a)); }
inline Tensor pow(Number a, const Tensor& b) { return raw::pow(operand(a, b), b); }
inline Tensor remainder(const Tensor& a, Number b) { return raw::remainder(a, operand(b, a)); }
inline Tensor maximum(const Tensor& a, Number b) { return raw::maximum(a, operand(b, a)); }
inline Tensor minimum(const Tensor& a, Number b) { return raw::minimum(a, operand(b, a)); }

// In-place ops: dst keeps its shape, dtype and layout, and increments its version; operands broadcast to dst.
// Errors: as the ops above; DTypeError if dst's kind of dtype (bool < integer < floating) is below the
// result's; ShapeError if elements of dst share memory.
void add_(const Tensor& dst, const Tensor& src);
void add_(const Tensor& dst, const Tensor& src, Number alpha);  // dst += alpha src
void sub_(const Tensor& dst, const Tensor& src);
void mul_(const Tensor& dst, const Tensor& src);
void div_(const Tensor& dst, const Tensor& src);
void lerp_(const Tensor& dst, const Tensor& src, double weight);  // dst += weight (src - dst)
void clamp_(const Tensor& dst, Number low, Number high);
inline void add_(const Tensor& dst, Number number) { raw::add_(dst, operand(number, dst)); }
inline void sub_(const Tensor& dst, Number number) { raw::sub_(dst, operand(number, dst)); }
inline void mul_(const Tensor& dst, Number number) { raw::mul_(dst, operand(number, dst)); }
inline void div_(const Tensor& dst, Number number) { raw::div_(dst, operand(number, dst)); }

}  // namespace gradus::raw
