// Base classes of functors. A functor is the function of one element of an element-wise op, written once for
// CPU and GPU. operator() is a template over the type T that the element is computed in: float for 16-bit
// floats, int32_t for i8 and i16. The base class defines which T it accepts. Members are the op's parameters
// as double (or int64_t), in the order of the op's arguments. raw::unary and raw::binary (elementwise.h)
// apply functors to tensors.
//
// A functor may have needs_fallback(x...) for f32: kernels call fallback(x...) instead of operator() where it
// is true, because the vectorized formula of operator() is not accurate there.
//
// `kHalfVectors` names result types for which GPU threads take vectors of 8 bytes instead of 16: with 16, nvcc spills
// registers, or takes so many that less than half of a multiprocessor is occupied (tools/gpu_lab/report.sh).
#pragma once

#include <cstdint>
#include <type_traits>

#include "gradus/tensor/ops/scalar_math.h"

// Define a functor without parameters by an expression of the element x, or of the elements a and b, of type T.
// Base: OnFloats or another base class; op: the name in errors; Result: T, or bool for a predicate.
#define GRADUS_UNARY_FUNCTOR(Name, Base, op, Result, expression)                     \
  struct Name : Base {                                                               \
    static constexpr const char* name = op;                                          \
    template <class T> GRADUS_HD Result operator()(T x) const { return expression; } \
  }
#define GRADUS_BINARY_FUNCTOR(Name, Base, op, Result, expression)                         \
  struct Name : Base {                                                                    \
    static constexpr const char* name = op;                                               \
    template <class T> GRADUS_HD Result operator()(T a, T b) const { return expression; } \
  }

namespace gradus::functors {

// Accepts float and double; integer operands are converted to the default dtype.
struct OnFloats {
  template <class T> static constexpr bool accepts = std::is_floating_point_v<T>;
};
// DTypeError for bool.
struct OnNumbers {
  template <class T> static constexpr bool accepts = !std::is_same_v<T, bool>;
};
struct OnAll {
  template <class T> static constexpr bool accepts = true;
};
// Rounding functions: accept floats; integer operands are returned unchanged.
struct OnFractions : OnFloats {};
// Accepts integers and bool; DTypeError for floats.
struct OnIntegers {
  template <class T> static constexpr bool accepts = std::is_integral_v<T>;
};
// Operands of all dtypes are converted to bool: x != 0.
struct OnBools {
  template <class T> static constexpr bool accepts = std::is_same_v<T, bool>;
};

// W<T>: the type in which T is added and multiplied. Signed integers are computed as unsigned ones, so that they
// wrap on overflow.
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

}  // namespace gradus::functors
