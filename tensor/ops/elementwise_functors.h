// What each element-wise op computes for one element: written once, compiled for the CPU and for GPUs.
//
// A functor names the element types it accepts through its base; 16-bit floats are computed as float.
// Parameters are doubles in the order of the op's arguments.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "gradus/tensor/ops/math.h"
#include "gradus/tensor/ops/special_functions.h"

namespace gradus::functors {

// Signed integers wrap, as the hardware's do: they are added and multiplied as unsigned ones.
template <class T> struct Wrapping {
  using type = T;
};
template <> struct Wrapping<int32_t> {
  using type = uint32_t;
};
template <> struct Wrapping<int64_t> {
  using type = uint64_t;
};
template <class T> using W = typename Wrapping<T>::type;

struct OnFloats {
  template <class T> static constexpr bool accepts = std::is_floating_point_v<T>;
};
struct OnNumbers {
  template <class T> static constexpr bool accepts = !std::is_same_v<T, bool>;
};
struct OnAll {
  template <class T> static constexpr bool accepts = true;
};
// Integers are their own results.
struct OnFractions : OnFloats {};
struct OnIntegers {
  template <class T> static constexpr bool accepts = std::is_integral_v<T>;
};
struct OnBools {
  template <class T> static constexpr bool accepts = std::is_same_v<T, bool>;
};

// Arithmetic.
struct Add : OnAll {
  static constexpr const char* name = "add";
  template <class T> GRADUS_HD T operator()(T a, T b) const { return T(W<T>(a) + W<T>(b)); }
};
struct Sub : OnNumbers {
  static constexpr const char* name = "sub";
  template <class T> GRADUS_HD T operator()(T a, T b) const { return T(W<T>(a) - W<T>(b)); }
};
struct Mul : OnAll {
  static constexpr const char* name = "mul";
  template <class T> GRADUS_HD T operator()(T a, T b) const { return T(W<T>(a) * W<T>(b)); }
};
struct Div : OnFloats {
  static constexpr const char* name = "div";
  template <class T> GRADUS_HD T operator()(T a, T b) const { return a / b; }
};
// A comparison with NaN is false, so each of these lets a NaN on either side through.
struct Maximum : OnAll {
  static constexpr const char* name = "maximum";
  template <class T> GRADUS_HD T operator()(T a, T b) const { return a > b || a != a ? a : b; }
};
struct Minimum : OnAll {
  static constexpr const char* name = "minimum";
  template <class T> GRADUS_HD T operator()(T a, T b) const { return a < b || a != a ? a : b; }
};
// a + alpha b
struct AddScaled : OnNumbers {
  static constexpr const char* name = "add";
  double alpha;
  int64_t integer_alpha;  // exact, for integers
  template <class T> GRADUS_HD T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>)
      return m::fma(T(alpha), b, a);
    else
      return T(W<T>(a) + W<T>(T(integer_alpha)) * W<T>(b));
  }
};

// a to the power b. Negative powers of integers round toward zero.
struct Pow : OnNumbers {
  static constexpr const char* name = "pow";
  template <class T> GRADUS_HD T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return m::pow(a, b);
    } else {
      if constexpr (std::is_signed_v<T>)
        if (b < 0) return a == 1 ? T(1) : a == -1 ? (b % 2 ? T(-1) : T(1)) : T(0);
      // Unsigned inside: overflow wraps.
      uint64_t result = 1, base = static_cast<uint64_t>(a);
      for (uint64_t e = static_cast<uint64_t>(b); e; e >>= 1, base *= base)
        if (e & 1) result *= base;
      return static_cast<T>(result);
    }
  }
};

// a - b q, by double: q is too large by one at most, which `r` shows, and the product is exact. Not for
// quotients of 2^52 and more, infinities and NaN.
struct OnQuotients : OnNumbers {
  GRADUS_HD bool is_far(float a, float b) const { return !(m::abs(a) < 4e15f * m::abs(b)); }
};

// The remainder with the divisor's sign. Integers: 0 for a divisor of 0.
struct Remainder : OnQuotients {
  static constexpr const char* name = "remainder";
  template <class T> GRADUS_HD T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, float>) {
      const double u = a, v = b;
      const double r = m::fma(-std::floor(u / v), v, u);
      return float(((r < 0) != (v < 0)) & (r != 0) ? r + v : r);
    } else {
      return far(a, b);
    }
  }
  template <class T> GRADUS_HD T far(T a, T b) const {
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

// a + weight (b - a), exact at both ends.
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

// x + value a b, x + value a / b
struct AddCMul : OnFloats {
  static constexpr const char* name = "addcmul";
  double value;
  template <class T> GRADUS_HD T operator()(T x, T a, T b) const { return m::fma(T(value) * a, b, x); }
};
struct AddCDiv : OnFloats {
  static constexpr const char* name = "addcdiv";
  double value;
  template <class T> GRADUS_HD T operator()(T x, T a, T b) const { return m::fma(T(value), a / b, x); }
};

// Comparison and logic.
struct Eq : OnAll {
  static constexpr const char* name = "eq";
  template <class T> GRADUS_HD bool operator()(T a, T b) const { return a == b; }
};
struct Ne : OnAll {
  static constexpr const char* name = "ne";
  template <class T> GRADUS_HD bool operator()(T a, T b) const { return a != b; }
};
struct Lt : OnAll {
  static constexpr const char* name = "lt";
  template <class T> GRADUS_HD bool operator()(T a, T b) const { return a < b; }
};
struct Le : OnAll {
  static constexpr const char* name = "le";
  template <class T> GRADUS_HD bool operator()(T a, T b) const { return a <= b; }
};
struct Gt : OnAll {
  static constexpr const char* name = "gt";
  template <class T> GRADUS_HD bool operator()(T a, T b) const { return a > b; }
};
struct Ge : OnAll {
  static constexpr const char* name = "ge";
  template <class T> GRADUS_HD bool operator()(T a, T b) const { return a >= b; }
};
struct LogicalAnd : OnBools {
  static constexpr const char* name = "logical_and";
  template <class T> GRADUS_HD bool operator()(T a, T b) const { return a & b; }
};
struct LogicalOr : OnBools {
  static constexpr const char* name = "logical_or";
  template <class T> GRADUS_HD bool operator()(T a, T b) const { return a | b; }
};
struct LogicalNot : OnBools {
  static constexpr const char* name = "logical_not";
  template <class T> GRADUS_HD bool operator()(T a) const { return !a; }
};
struct IsNaN : OnAll {
  static constexpr const char* name = "isnan";
  template <class T> GRADUS_HD bool operator()(T x) const { return x != x; }
};
struct IsFinite : OnAll {
  static constexpr const char* name = "isfinite";
  template <class T> GRADUS_HD bool operator()(T x) const { return T(x - x) == T(0); }
};

// a where the condition holds, else b; by bit masks, because a branch between two loads is not turned into
// vector code. Conditions are read as bytes for the same reason.
template <class T> GRADUS_HD T choose(uint8_t condition, T a, T b) {
  using U =
      std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint8_t>>;
  const U mask = U(U(0) - U(condition != 0));
  return std::bit_cast<T>(U((std::bit_cast<U>(a) & mask) | (std::bit_cast<U>(b) & U(~mask))));
}
struct Where : OnAll {
  template <class T> GRADUS_HD T operator()(uint8_t condition, T a, T b) const {
    return choose(condition, a, b);
  }
};
struct MaskedScale : OnFloats {
  double scale;
  template <class T> GRADUS_HD T operator()(T x, uint8_t keep) const {
    return choose(keep, T(x * T(scale)), T(0));
  }
};

// Functions of one number.
struct Neg : OnNumbers {
  static constexpr const char* name = "neg";
  template <class T> GRADUS_HD T operator()(T x) const { return T(-W<T>(x)); }
};
struct Abs : OnNumbers {
  static constexpr const char* name = "abs";
  template <class T> GRADUS_HD T operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>)
      return m::abs(x);
    else
      return x < T(0) ? T(-W<T>(x)) : x;
  }
};
struct Sign : OnNumbers {
  static constexpr const char* name = "sign";
  template <class T> GRADUS_HD T operator()(T x) const { return T((T(0) < x) - (x < T(0))); }
};
struct Square : OnNumbers {
  static constexpr const char* name = "square";
  template <class T> GRADUS_HD T operator()(T x) const { return T(W<T>(x) * W<T>(x)); }
};
struct Exp : OnFloats {
  static constexpr const char* name = "exp";
  template <class T> GRADUS_HD T operator()(T x) const { return m::exp(x); }
};
struct Expm1 : OnFloats {
  static constexpr const char* name = "expm1";
  template <class T> GRADUS_HD T operator()(T x) const { return m::expm1(x); }
};
struct Log : OnFloats {
  static constexpr const char* name = "log";
  template <class T> GRADUS_HD T operator()(T x) const { return m::log(x); }
};
struct Log1p : OnFloats {
  static constexpr const char* name = "log1p";
  template <class T> GRADUS_HD T operator()(T x) const { return m::log1p(x); }
};
struct Sqrt : OnFloats {
  static constexpr const char* name = "sqrt";
  template <class T> GRADUS_HD T operator()(T x) const { return m::sqrt(x); }
};
struct Rsqrt : OnFloats {
  static constexpr const char* name = "rsqrt";
  template <class T> GRADUS_HD T operator()(T x) const { return T(1) / m::sqrt(x); }
};
struct Reciprocal : OnFloats {
  static constexpr const char* name = "reciprocal";
  template <class T> GRADUS_HD T operator()(T x) const { return T(1) / x; }
};
// Angles that m::sin and its like do not reduce in f32.
struct OnAngles : OnFloats {
  GRADUS_HD bool is_far(float x) const { return !(m::abs(x) < 1e15f); }
};
struct Sin : OnAngles {
  static constexpr const char* name = "sin";
  template <class T> GRADUS_HD T operator()(T x) const { return m::sin(x); }
  float far(float x) const { return std::sin(x); }
};
struct Cos : OnAngles {
  static constexpr const char* name = "cos";
  template <class T> GRADUS_HD T operator()(T x) const { return m::cos(x); }
  float far(float x) const { return std::cos(x); }
};
struct Tanh : OnFloats {
  static constexpr const char* name = "tanh";
  template <class T> GRADUS_HD T operator()(T x) const { return m::tanh(x); }
};
struct Sigmoid : OnFloats {
  static constexpr const char* name = "sigmoid";
  template <class T> GRADUS_HD T operator()(T x) const { return m::sigmoid(x); }
};
struct Erf : OnFloats {
  static constexpr const char* name = "erf";
  template <class T> GRADUS_HD T operator()(T x) const { return m::erf(x); }
};
struct Floor : OnFractions {
  static constexpr const char* name = "floor";
  template <class T> GRADUS_HD T operator()(T x) const { return std::floor(x); }
};
struct Ceil : OnFractions {
  static constexpr const char* name = "ceil";
  template <class T> GRADUS_HD T operator()(T x) const { return std::ceil(x); }
};
struct Round : OnFractions {
  static constexpr const char* name = "round";
  template <class T> GRADUS_HD T operator()(T x) const { return std::rint(x); }
};
struct Clamp : OnNumbers {
  static constexpr const char* name = "clamp";
  double low, high;
  int64_t integer_low, integer_high;  // exact, for integers
  template <class T> GRADUS_HD T operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>) {
      const T raised = x < T(low) ? T(low) : x;
      return raised > T(high) ? T(high) : raised;
    } else {  // compared in 64 bits: the bounds may lie outside of T
      const int64_t raised = x < integer_low ? integer_low : x;
      return T(raised > integer_high ? integer_high : raised);
    }
  }
};

// Activations and their fused backward forms; a backward takes dy and the input x or the output y.
struct Relu : OnNumbers {
  static constexpr const char* name = "relu";
  template <class T> GRADUS_HD T operator()(T x) const { return x < T(0) ? T(0) : x; }
};
struct ReluBackward : OnFloats {
  static constexpr const char* name = "relu_backward";
  template <class T> GRADUS_HD T operator()(T dy, T y) const { return y <= T(0) ? T(0) : dy; }
};
struct LeakyRelu : OnFloats {
  static constexpr const char* name = "leaky_relu";
  double slope;
  template <class T> GRADUS_HD T operator()(T x) const { return x < T(0) ? T(slope) * x : x; }
};
struct LeakyReluBackward : OnFloats {
  static constexpr const char* name = "leaky_relu_backward";
  double slope;
  template <class T> GRADUS_HD T operator()(T dy, T x) const { return x > T(0) ? dy : T(slope) * dy; }
};
struct Elu : OnFloats {
  static constexpr const char* name = "elu";
  double alpha;
  template <class T> GRADUS_HD T operator()(T x) const { return x <= T(0) ? T(alpha) * m::expm1(x) : x; }
};
struct EluBackward : OnFloats {
  static constexpr const char* name = "elu_backward";
  double alpha;
  template <class T> GRADUS_HD T operator()(T dy, T x) const {
    return x <= T(0) ? dy * T(alpha) * m::exp(x) : dy;
  }
};
struct SigmoidBackward : OnFloats {
  static constexpr const char* name = "sigmoid_backward";
  template <class T> GRADUS_HD T operator()(T dy, T y) const { return dy * (y * (T(1) - y)); }
};
struct TanhBackward : OnFloats {
  static constexpr const char* name = "tanh_backward";
  template <class T> GRADUS_HD T operator()(T dy, T y) const { return dy * (T(1) - y * y); }
};
struct Softplus : OnFloats {
  static constexpr const char* name = "softplus";
  double beta, threshold;
  template <class T> GRADUS_HD T operator()(T x) const {
    const T z = x * T(beta);
    return z > T(threshold) ? x : m::log1p(m::exp(z)) / T(beta);
  }
};
// log(1 / (1 + e^-x)), in a form whose exponential does not overflow.
struct LogSigmoid : OnFloats {
  static constexpr const char* name = "logsigmoid";
  template <class T> GRADUS_HD T operator()(T x) const {
    return (x < T(0) ? x : T(0)) - m::log1p(m::exp(-m::abs(x)));
  }
};
struct Silu : OnFloats {
  static constexpr const char* name = "silu";
  template <class T> GRADUS_HD T operator()(T x) const { return x * m::sigmoid(x); }
};
struct SiluBackward : OnFloats {
  static constexpr const char* name = "silu_backward";
  template <class T> GRADUS_HD T operator()(T dy, T x) const {
    const T s = m::sigmoid(x);
    return dy * s * (T(1) + x * (T(1) - s));
  }
};
struct Gelu : OnFloats {
  static constexpr const char* name = "gelu";
  template <class T> GRADUS_HD T operator()(T x) const {
    return T(0.5) * x * (T(1) + m::erf(x * T(0.70710678118654752)));
  }
};
struct GeluBackward : OnFloats {
  static constexpr const char* name = "gelu_backward";
  template <class T> GRADUS_HD T operator()(T dy, T x) const {
    const T cdf = T(0.5) * (T(1) + m::erf(x * T(0.70710678118654752)));
    const T pdf = T(0.39894228040143268) * m::exp(T(-0.5) * x * x);
    return dy * (cdf + x * pdf);
  }
};
// With u = sqrt(2/pi) (x + 0.044715 x^3).
struct GeluTanh : OnFloats {
  static constexpr const char* name = "gelu_tanh";
  template <class T> GRADUS_HD T operator()(T x) const {
    const T u = T(0.79788456080286536) * (x + T(0.044715) * x * x * x);
    return T(0.5) * x * (T(1) + m::tanh(u));
  }
};
struct GeluTanhBackward : OnFloats {
  static constexpr const char* name = "gelu_tanh_backward";
  template <class T> GRADUS_HD T operator()(T dy, T x) const {
    const T u = T(0.79788456080286536) * (x + T(0.044715) * x * x * x);
    const T t = m::tanh(u);
    const T du = T(0.79788456080286536) * (T(1) + T(3 * 0.044715) * x * x);
    return dy * (T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * du);
  }
};
// dy where low < x < high, else 0, NaN included; an infinite bound is none.
struct ClampBackward : OnFloats {
  static constexpr const char* name = "clamp_backward";
  double low, high;
  template <class T> GRADUS_HD T operator()(T dy, T x) const {
    const bool above = x > T(low) || low == -INFINITY, below = x < T(high) || high == INFINITY;
    return above && below ? dy : T(0);
  }
};

// Further functions of one number.
struct Tan : OnAngles {
  static constexpr const char* name = "tan";
  template <class T> GRADUS_HD T operator()(T x) const { return m::tan(x); }
  float far(float x) const { return std::tan(x); }
};
struct Asin : OnFloats {
  static constexpr const char* name = "asin";
  template <class T> GRADUS_HD T operator()(T x) const { return m::asin(x); }
};
struct Acos : OnFloats {
  static constexpr const char* name = "acos";
  template <class T> GRADUS_HD T operator()(T x) const { return m::acos(x); }
};
struct Atan : OnFloats {
  static constexpr const char* name = "atan";
  template <class T> GRADUS_HD T operator()(T x) const { return m::atan(x); }
};
struct Sinh : OnFloats {
  static constexpr const char* name = "sinh";
  template <class T> GRADUS_HD T operator()(T x) const { return m::sinh(x); }
};
struct Cosh : OnFloats {
  static constexpr const char* name = "cosh";
  template <class T> GRADUS_HD T operator()(T x) const { return m::cosh(x); }
};
struct Asinh : OnFloats {
  static constexpr const char* name = "asinh";
  template <class T> GRADUS_HD T operator()(T x) const { return m::asinh(x); }
};
struct Acosh : OnFloats {
  static constexpr const char* name = "acosh";
  template <class T> GRADUS_HD T operator()(T x) const { return m::acosh(x); }
};
struct Atanh : OnFloats {
  static constexpr const char* name = "atanh";
  template <class T> GRADUS_HD T operator()(T x) const { return m::atanh(x); }
};
struct Exp2 : OnFloats {
  static constexpr const char* name = "exp2";
  template <class T> GRADUS_HD T operator()(T x) const { return m::exp2(x); }
};
struct Log2 : OnFloats {
  static constexpr const char* name = "log2";
  template <class T> GRADUS_HD T operator()(T x) const { return m::log2(x); }
};
struct Log10 : OnFloats {
  static constexpr const char* name = "log10";
  template <class T> GRADUS_HD T operator()(T x) const { return m::log10(x); }
};
// These three compute in double.
struct Erfinv : OnFloats {
  static constexpr const char* name = "erfinv";
  template <class T> T operator()(T x) const { return T(m::erfinv(x)); }
};
struct Lgamma : OnFloats {
  static constexpr const char* name = "lgamma";
  template <class T> T operator()(T x) const {
    int sign;
    return T(::lgamma_r(double(x), &sign));
  }
};
struct Polygamma : OnFloats {
  static constexpr const char* name = "polygamma";
  int64_t n = 0;
  template <class T> T operator()(T x) const { return T(m::polygamma(int(n), x)); }
};
struct Erfc : OnFloats {
  static constexpr const char* name = "erfc";
  template <class T> GRADUS_HD T operator()(T x) const { return m::erfc(x); }
};
struct Trunc : OnFractions {
  static constexpr const char* name = "trunc";
  template <class T> GRADUS_HD T operator()(T x) const { return std::trunc(x); }
};
struct IsInf : OnAll {
  static constexpr const char* name = "isinf";
  template <class T> GRADUS_HD bool operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>)
      return m::abs(x) == std::numeric_limits<T>::infinity();
    else
      return false;
  }
};
struct NanToNum : OnFractions {
  static constexpr const char* name = "nan_to_num";
  double nan, positive, negative;
  template <class T> GRADUS_HD T operator()(T x) const {
    constexpr T kInf = std::numeric_limits<T>::infinity();
    return x != x ? T(nan) : x == kInf ? T(positive) : x == -kInf ? T(negative) : x;
  }
};

// Of two numbers.
struct Atan2 : OnFloats {
  static constexpr const char* name = "atan2";
  template <class T> GRADUS_HD T operator()(T y, T x) const {
    // The angle of (|x|, |y|), then the half-plane and the sign.
    const T a = m::abs(x), b = m::abs(y);
    const T small = a < b ? a : b, large = a < b ? b : a;
    const T ratio = large == T(0) ? T(0) : small == large ? T(1) : small / large;
    T r = m::atan(ratio);
    r = b > a ? T(1.57079632679489662) - r : r;
    r = std::signbit(x) ? T(3.14159265358979324) - r : r;
    return x != x || y != y ? x + y : m::copysign(r, y);
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
      return far(a, b);
    }
  }
  template <class T> GRADUS_HD T far(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>)
      return std::fmod(a, b);
    else if constexpr (std::is_signed_v<T>)
      return b == 0 || b == -1 ? T(0) : T(a % b);
    else
      return b == 0 ? T(0) : T(a % b);
  }
};
// Rounded down. Integers: 0 for a divisor of 0.
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
// Rounded toward 0. Integers: 0 for a divisor of 0.
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
struct Hypot : OnFloats {
  static constexpr const char* name = "hypot";
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
struct Copysign : OnFloats {
  static constexpr const char* name = "copysign";
  template <class T> GRADUS_HD T operator()(T a, T b) const { return m::copysign(a, b); }
};
// x log y, 0 where x is 0 (unless y is NaN).
struct Xlogy : OnFloats {
  static constexpr const char* name = "xlogy";
  template <class T> GRADUS_HD T operator()(T x, T y) const {
    return x == T(0) && y == y ? T(0) : x * m::log(y);
  }
};
struct LogAddExp : OnFloats {
  static constexpr const char* name = "logaddexp";
  template <class T> GRADUS_HD T operator()(T a, T b) const {
    const T large = a > b ? a : b, off = -m::abs(a - b);
    return a == b && m::abs(a) == std::numeric_limits<T>::infinity() ? a
           : a != a || b != b                                        ? a + b
                                                                     : large + m::log1p(m::exp(off));
  }
};
struct Heaviside : OnNumbers {
  static constexpr const char* name = "heaviside";
  template <class T> GRADUS_HD T operator()(T x, T at_zero) const {
    return x != x ? x : x == T(0) ? at_zero : T(x > T(0));
  }
};
struct BitwiseAnd : OnIntegers {
  static constexpr const char* name = "bitwise_and";
  template <class T> GRADUS_HD T operator()(T a, T b) const { return T(a & b); }
};
struct BitwiseOr : OnIntegers {
  static constexpr const char* name = "bitwise_or";
  template <class T> GRADUS_HD T operator()(T a, T b) const { return T(a | b); }
};
struct BitwiseXor : OnIntegers {
  static constexpr const char* name = "bitwise_xor";
  template <class T> GRADUS_HD T operator()(T a, T b) const { return T(a ^ b); }
};
struct BitwiseNot : OnIntegers {
  static constexpr const char* name = "bitwise_not";
  template <class T> GRADUS_HD T operator()(T a) const {
    if constexpr (std::is_same_v<T, bool>)
      return !a;
    else
      return T(~a);
  }
};
// Shifts by less than 0, or by the width and more, leave 0 (or the sign, to the right).
struct ShiftLeft : OnIntegers {
  static constexpr const char* name = "bitwise_left_shift";
  template <class T> GRADUS_HD T operator()(T a, T b) const {
    const bool out = b < T(0) || uint64_t(b) >= 8 * sizeof(T);
    return out ? T(0) : T(W<T>(a) << (out ? T(0) : b));
  }
};
struct ShiftRight : OnIntegers {
  static constexpr const char* name = "bitwise_right_shift";
  template <class T> GRADUS_HD T operator()(T a, T b) const {
    const bool out = b < T(0) || uint64_t(b) >= 8 * sizeof(T);
    return out ? T(a < T(0) ? -1 : 0) : T(a >> (out ? T(0) : b));
  }
};

// Further activations.
struct Selu : OnFloats {
  static constexpr const char* name = "selu";
  template <class T> GRADUS_HD T operator()(T x) const {
    return x > T(0) ? T(1.0507009873554805) * x : T(1.0507009873554805 * 1.6732632423543772) * m::expm1(x);
  }
};
struct Celu : OnFloats {
  static constexpr const char* name = "celu";
  double alpha;
  template <class T> GRADUS_HD T operator()(T x) const {
    return x > T(0) ? x : T(alpha) * m::expm1(x / T(alpha));
  }
};
// x tanh(log(1 + e^x)), with n = e^x: x (n^2 + 2n) / (n^2 + 2n + 2)
struct Mish : OnFloats {
  static constexpr const char* name = "mish";
  template <class T> GRADUS_HD T operator()(T x) const {
    const T n = m::exp(x > T(20) ? T(20) : x), t = n * (n + T(2));
    return x > T(20) ? x : x * (t / (t + T(2)));
  }
};
struct HardSigmoid : OnFloats {
  static constexpr const char* name = "hardsigmoid";
  template <class T> GRADUS_HD T operator()(T x) const {
    const T y = (x + T(3)) / T(6);
    return y < T(0) ? T(0) : y > T(1) ? T(1) : y;
  }
};
struct HardSwish : OnFloats {
  static constexpr const char* name = "hardswish";
  template <class T> GRADUS_HD T operator()(T x) const {
    const T y = x + T(3), c = y < T(0) ? T(0) : y > T(6) ? T(6) : y;
    return x * c / T(6);
  }
};
struct HardShrink : OnFloats {
  static constexpr const char* name = "hardshrink";
  double lambda;
  template <class T> GRADUS_HD T operator()(T x) const {
    return x >= T(-lambda) && x <= T(lambda) ? T(0) : x;
  }
};
struct SoftShrink : OnFloats {
  static constexpr const char* name = "softshrink";
  double lambda;
  template <class T> GRADUS_HD T operator()(T x) const {
    const T l = T(lambda);
    return x > l ? x - l : x < -l ? x + l : x * T(0);  // NaN stays
  }
};
struct Threshold : OnNumbers {
  static constexpr const char* name = "threshold";
  double threshold, value;
  template <class T> GRADUS_HD T operator()(T x) const { return x <= T(threshold) ? T(value) : x; }
};
struct Prelu : OnFloats {
  static constexpr const char* name = "prelu";
  template <class T> GRADUS_HD T operator()(T x, T slope) const { return x > T(0) ? x : slope * x; }
};

}  // namespace gradus::functors
