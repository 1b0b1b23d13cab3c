// What each element-wise op computes for one element: written once, compiled for the CPU and for GPUs.
//
// A functor names the element types it accepts through its base; 16-bit floats are computed as float.
// Parameters are doubles in the order of the op's arguments.
#pragma once

#include <cmath>
#include <type_traits>

#include "gradus/tensor/ops/math.h"

namespace gradus::functors {

// Signed integers wrap, as the hardware's do: they are added and multiplied as unsigned ones.
template <class T>
struct Wrapping {
  using type = T;
};
template <>
struct Wrapping<int32_t> {
  using type = uint32_t;
};
template <>
struct Wrapping<int64_t> {
  using type = uint64_t;
};
template <class T>
using W = typename Wrapping<T>::type;

// clang-format off
struct OnFloats  { template <class T> static constexpr bool accepts = std::is_floating_point_v<T>; };
struct OnNumbers { template <class T> static constexpr bool accepts = !std::is_same_v<T, bool>; };
struct OnAll     { template <class T> static constexpr bool accepts = true; };
struct OnBools   { template <class T> static constexpr bool accepts = std::is_same_v<T, bool>; };

// Arithmetic.
struct Add : OnAll {
  template <class T> GRADUS_HD T operator()(T a, T b) const { return T(W<T>(a) + W<T>(b)); }
};
struct Sub : OnNumbers {
  template <class T> GRADUS_HD T operator()(T a, T b) const { return T(W<T>(a) - W<T>(b)); }
};
struct Mul : OnAll {
  template <class T> GRADUS_HD T operator()(T a, T b) const { return T(W<T>(a) * W<T>(b)); }
};
struct Div : OnFloats { template <class T> GRADUS_HD T operator()(T a, T b) const { return a / b; } };
// A comparison with NaN is false, so each of these lets a NaN on either side through.
struct Maximum : OnAll {
  template <class T> GRADUS_HD T operator()(T a, T b) const { return a > b || a != a ? a : b; }
};
struct Minimum : OnAll {
  template <class T> GRADUS_HD T operator()(T a, T b) const { return a < b || a != a ? a : b; }
};
// a + alpha b
struct AddScaled : OnNumbers {
  double alpha;
  template <class T> GRADUS_HD T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) return m::fma(T(alpha), b, a);
    else return T(W<T>(a) + W<T>(T(alpha)) * W<T>(b));
  }
};
// clang-format on

// a to the power b. Negative powers of integers round towards zero.
struct Pow : OnNumbers {
  template <class T>
  GRADUS_HD T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return std::pow(a, b);
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

// The remainder with the divisor's sign. Integers: 0 for a divisor of 0.
struct Remainder : OnNumbers {
  template <class T>
  GRADUS_HD T operator()(T a, T b) const {
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
  template <class T>
  GRADUS_HD T operator()(T a, T b, T weight) const {
    return m::abs(weight) < T(0.5) ? m::fma(weight, b - a, a) : m::fma(weight - T(1), b - a, b);
  }
};
struct Lerp : OnFloats {
  double weight;
  template <class T>
  GRADUS_HD T operator()(T a, T b) const {
    return LerpTensor{}(a, b, T(weight));
  }
};

// clang-format off
// x + value a b, x + value a / b
struct AddCMul : OnFloats {
  double value;
  template <class T> GRADUS_HD T operator()(T x, T a, T b) const { return m::fma(T(value) * a, b, x); }
};
struct AddCDiv : OnFloats {
  double value;
  template <class T> GRADUS_HD T operator()(T x, T a, T b) const { return m::fma(T(value), a / b, x); }
};

// Comparison and logic.
struct Eq : OnAll { template <class T> GRADUS_HD bool operator()(T a, T b) const { return a == b; } };
struct Ne : OnAll { template <class T> GRADUS_HD bool operator()(T a, T b) const { return a != b; } };
struct Lt : OnAll { template <class T> GRADUS_HD bool operator()(T a, T b) const { return a < b; } };
struct Le : OnAll { template <class T> GRADUS_HD bool operator()(T a, T b) const { return a <= b; } };
struct Gt : OnAll { template <class T> GRADUS_HD bool operator()(T a, T b) const { return a > b; } };
struct Ge : OnAll { template <class T> GRADUS_HD bool operator()(T a, T b) const { return a >= b; } };
struct LogicalAnd : OnBools {
  template <class T> GRADUS_HD bool operator()(T a, T b) const { return a & b; }
};
struct LogicalOr : OnBools { template <class T> GRADUS_HD bool operator()(T a, T b) const { return a | b; } };
struct LogicalNot : OnBools { template <class T> GRADUS_HD bool operator()(T a) const { return !a; } };
struct IsNaN : OnAll { template <class T> GRADUS_HD bool operator()(T x) const { return x != x; } };
struct IsFinite : OnAll {
  template <class T> GRADUS_HD bool operator()(T x) const { return T(x - x) == T(0); }
};
// clang-format on

// a where the condition holds, else b; by bit masks, because a branch between two loads is not turned into
// vector code. Conditions are read as bytes for the same reason.
template <class T>
GRADUS_HD T choose(uint8_t condition, T a, T b) {
  using U =
      std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint8_t>>;
  const U mask = U(U(0) - U(condition != 0));
  return std::bit_cast<T>(U((std::bit_cast<U>(a) & mask) | (std::bit_cast<U>(b) & U(~mask))));
}
struct Where : OnAll {
  template <class T>
  GRADUS_HD T operator()(uint8_t condition, T a, T b) const {
    return choose(condition, a, b);
  }
};
struct MaskedScale : OnFloats {
  double scale;
  template <class T>
  GRADUS_HD T operator()(T x, uint8_t keep) const {
    return choose(keep, T(x * T(scale)), T(0));
  }
};

// clang-format off
// Functions of one number.
struct Neg : OnNumbers { template <class T> GRADUS_HD T operator()(T x) const { return T(-W<T>(x)); } };
struct Abs : OnNumbers {
  template <class T> GRADUS_HD T operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>) return m::abs(x);
    else return x < T(0) ? T(-W<T>(x)) : x;
  }
};
struct Sign : OnNumbers {
  template <class T> GRADUS_HD T operator()(T x) const { return T((T(0) < x) - (x < T(0))); }
};
struct Square : OnNumbers {
  template <class T> GRADUS_HD T operator()(T x) const { return T(W<T>(x) * W<T>(x)); }
};
struct Exp : OnFloats { template <class T> GRADUS_HD T operator()(T x) const { return m::exp(x); } };
struct Expm1 : OnFloats { template <class T> GRADUS_HD T operator()(T x) const { return m::expm1(x); } };
struct Log : OnFloats { template <class T> GRADUS_HD T operator()(T x) const { return m::log(x); } };
struct Log1p : OnFloats { template <class T> GRADUS_HD T operator()(T x) const { return m::log1p(x); } };
struct Sqrt : OnFloats { template <class T> GRADUS_HD T operator()(T x) const { return m::sqrt(x); } };
struct Rsqrt : OnFloats {
  template <class T> GRADUS_HD T operator()(T x) const { return T(1) / m::sqrt(x); }
};
struct Reciprocal : OnFloats { template <class T> GRADUS_HD T operator()(T x) const { return T(1) / x; } };
struct Sin : OnFloats { template <class T> GRADUS_HD T operator()(T x) const { return std::sin(x); } };
struct Cos : OnFloats { template <class T> GRADUS_HD T operator()(T x) const { return std::cos(x); } };
struct Tanh : OnFloats { template <class T> GRADUS_HD T operator()(T x) const { return m::tanh(x); } };
struct Sigmoid : OnFloats { template <class T> GRADUS_HD T operator()(T x) const { return m::sigmoid(x); } };
struct Erf : OnFloats { template <class T> GRADUS_HD T operator()(T x) const { return m::erf(x); } };
struct Floor : OnFloats { template <class T> GRADUS_HD T operator()(T x) const { return std::floor(x); } };
struct Ceil : OnFloats { template <class T> GRADUS_HD T operator()(T x) const { return std::ceil(x); } };
struct Round : OnFloats { template <class T> GRADUS_HD T operator()(T x) const { return std::rint(x); } };
// clang-format on
struct Clamp : OnNumbers {
  double low, high;
  template <class T>
  GRADUS_HD T operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>) {
      const T raised = x < T(low) ? T(low) : x;
      return raised > T(high) ? T(high) : raised;
    } else {  // compared as doubles: the bounds may lie outside of T
      return x < low ? T(low) : x > high ? T(high) : x;
    }
  }
};

// Activations and their fused backward forms; a backward takes dy and the input x or the output y.
// clang-format off
struct Relu : OnNumbers {
  template <class T> GRADUS_HD T operator()(T x) const { return x < T(0) ? T(0) : x; }
};
struct ReluBackward : OnFloats {
  template <class T> GRADUS_HD T operator()(T dy, T y) const { return y <= T(0) ? T(0) : dy; }
};
struct LeakyRelu : OnFloats {
  double slope;
  template <class T> GRADUS_HD T operator()(T x) const { return x < T(0) ? T(slope) * x : x; }
};
struct LeakyReluBackward : OnFloats {
  double slope;
  template <class T> GRADUS_HD T operator()(T dy, T x) const { return x > T(0) ? dy : T(slope) * dy; }
};
struct Elu : OnFloats {
  double alpha;
  template <class T> GRADUS_HD T operator()(T x) const { return x <= T(0) ? T(alpha) * m::expm1(x) : x; }
};
struct EluBackward : OnFloats {
  double alpha;
  template <class T> GRADUS_HD T operator()(T dy, T x) const { return x <= T(0) ? dy * T(alpha) * m::exp(x) : dy; }
};
struct SigmoidBackward : OnFloats {
  template <class T> GRADUS_HD T operator()(T dy, T y) const { return dy * (y * (T(1) - y)); }
};
struct TanhBackward : OnFloats {
  template <class T> GRADUS_HD T operator()(T dy, T y) const { return dy * (T(1) - y * y); }
};
// clang-format on
struct Softplus : OnFloats {
  double beta;
  template <class T>
  GRADUS_HD T operator()(T x) const {
    const T z = x * T(beta);
    return z > T(20) ? x : m::log1p(m::exp(z)) / T(beta);
  }
};
// log(1 / (1 + e^-x)), in a form whose exponential does not overflow.
struct LogSigmoid : OnFloats {
  template <class T>
  GRADUS_HD T operator()(T x) const {
    return (x < T(0) ? x : T(0)) - m::log1p(m::exp(-m::abs(x)));
  }
};
struct Silu : OnFloats {
  template <class T>
  GRADUS_HD T operator()(T x) const {
    return x * m::sigmoid(x);
  }
};
struct SiluBackward : OnFloats {
  template <class T>
  GRADUS_HD T operator()(T dy, T x) const {
    const T s = m::sigmoid(x);
    return dy * s * (T(1) + x * (T(1) - s));
  }
};
struct Gelu : OnFloats {
  template <class T>
  GRADUS_HD T operator()(T x) const {
    return T(0.5) * x * (T(1) + m::erf(x * T(0.70710678118654752)));
  }
};
struct GeluBackward : OnFloats {
  template <class T>
  GRADUS_HD T operator()(T dy, T x) const {
    const T cdf = T(0.5) * (T(1) + m::erf(x * T(0.70710678118654752)));
    const T pdf = T(0.39894228040143268) * m::exp(T(-0.5) * x * x);
    return dy * (cdf + x * pdf);
  }
};
// With u = sqrt(2/pi) (x + 0.044715 x^3).
struct GeluTanh : OnFloats {
  template <class T>
  GRADUS_HD T operator()(T x) const {
    const T u = T(0.79788456080286536) * (x + T(0.044715) * x * x * x);
    return T(0.5) * x * (T(1) + m::tanh(u));
  }
};
struct GeluTanhBackward : OnFloats {
  template <class T>
  GRADUS_HD T operator()(T dy, T x) const {
    const T u = T(0.79788456080286536) * (x + T(0.044715) * x * x * x);
    const T t = m::tanh(u);
    const T du = T(0.79788456080286536) * (T(1) + T(3 * 0.044715) * x * x);
    return dy * (T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * du);
  }
};
// dy where low <= x <= high, else 0.
struct ClampBackward : OnFloats {
  double low, high;
  template <class T>
  GRADUS_HD T operator()(T dy, T x) const {
    return x >= T(low) && x <= T(high) ? dy : T(0);
  }
};

}  // namespace gradus::functors
