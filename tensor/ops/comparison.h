// Raw element-wise comparison, logical and bitwise ops, and where, without autograd. Users call
// gradus/autograd/ops/comparison.h. Operands broadcast; results keep the operands' common layout. A functor
// computes one element; its base class (functor.h) has the accepted types. T is the promoted type.
#pragma once

#include "gradus/tensor/ops/elementwise.h"

namespace gradus::functors {

GRADUS_BINARY_FUNCTOR(Eq, OnAll, "eq", bool, a == b);
GRADUS_BINARY_FUNCTOR(Ne, OnAll, "ne", bool, a != b);
GRADUS_BINARY_FUNCTOR(Lt, OnAll, "lt", bool, a < b);
GRADUS_BINARY_FUNCTOR(Le, OnAll, "le", bool, a <= b);
GRADUS_BINARY_FUNCTOR(Gt, OnAll, "gt", bool, a > b);
GRADUS_BINARY_FUNCTOR(Ge, OnAll, "ge", bool, a >= b);
struct LogicalAnd : OnBools {
  static constexpr const char* name = "logical_and";
  template <class T> GRADUS_HD bool operator()(T a, T b) const { return a & b; }
};
GRADUS_BINARY_FUNCTOR(LogicalOr, OnBools, "logical_or", bool, a | b);
GRADUS_UNARY_FUNCTOR(LogicalNot, OnBools, "logical_not", bool, !x);
GRADUS_UNARY_FUNCTOR(IsNaN, OnAll, "isnan", bool, x != x);
GRADUS_UNARY_FUNCTOR(IsFinite, OnAll, "isfinite", bool, T(x - x) == T(0));
struct IsInf : OnAll {
  static constexpr const char* name = "isinf";
  template <class T> GRADUS_HD bool operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>)
      return m::abs(x) == std::numeric_limits<T>::infinity();
    else
      return false;
  }
};
// condition ? a : b, computed with bit masks, because compilers do not vectorize a branch between two loads.
// Conditions are bytes for the same reason. T has 1, 4 or 8 bytes: kernels compute 16-bit types in 32 bits.
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
// mask ? scale * x : 0, of dropout.
struct MaskedScale : OnFloats {
  double scale;
  template <class T> GRADUS_HD T operator()(T x, uint8_t mask) const {
    return choose(mask, T(x * T(scale)), T(0));
  }
};
// Replaces NaN, inf and -inf by `nan`, `positive` and `negative`.
struct NanToNum : OnFractions {
  static constexpr const char* name = "nan_to_num";
  double nan, positive, negative;
  template <class T> GRADUS_HD T operator()(T x) const {
    constexpr T kInf = std::numeric_limits<T>::infinity();
    return x != x ? T(nan) : x == kInf ? T(positive) : x == -kInf ? T(negative) : x;
  }
};
struct BitwiseAnd : OnIntegers {
  static constexpr const char* name = "bitwise_and";
  template <class T> GRADUS_HD T operator()(T a, T b) const { return T(a & b); }
};
GRADUS_BINARY_FUNCTOR(BitwiseOr, OnIntegers, "bitwise_or", T, T(a | b));
GRADUS_BINARY_FUNCTOR(BitwiseXor, OnIntegers, "bitwise_xor", T, T(a ^ b));
struct BitwiseNot : OnIntegers {
  static constexpr const char* name = "bitwise_not";
  template <class T> GRADUS_HD T operator()(T a) const {
    if constexpr (std::is_same_v<T, bool>)
      return !a;
    else
      return T(~a);
  }
};
// Shifts by a negative number, or by at least the width of T, give 0; to the right 0 or -1, by the sign.
struct ShiftLeft : OnIntegers {
  static constexpr const char* name = "bitwise_left_shift";
  template <class T> GRADUS_HD T operator()(T a, T b) const {
    const bool too_far = b < T(0) || uint64_t(b) >= 8 * sizeof(T);
    return too_far ? T(0) : T(W<T>(a) << (too_far ? T(0) : b));
  }
};
struct ShiftRight : OnIntegers {
  static constexpr const char* name = "bitwise_right_shift";
  template <class T> GRADUS_HD T operator()(T a, T b) const {
    const bool too_far = b < T(0) || uint64_t(b) >= 8 * sizeof(T);
    return too_far ? T(a < T(0) ? -1 : 0) : T(a >> (too_far ? T(0) : b));
  }
};

// The slots of these functors, which each device fills.
using ComparisonSlots =
    raw::SlotList<raw::Binary<Eq>, raw::Binary<Ne>, raw::Binary<Lt>, raw::Binary<Le>, raw::Binary<Gt>,
                  raw::Binary<Ge>, raw::Binary<LogicalAnd>, raw::Binary<LogicalOr>, raw::Unary<LogicalNot>,
                  raw::Unary<IsNaN>, raw::Unary<IsFinite>, raw::Unary<IsInf>, raw::Unary<NanToNum>,
                  raw::Binary<BitwiseAnd>, raw::Binary<BitwiseOr>, raw::Binary<BitwiseXor>,
                  raw::Unary<BitwiseNot>, raw::Binary<ShiftLeft>, raw::Binary<ShiftRight>>;

}  // namespace gradus::functors

namespace gradus::raw {

// The kernel of where(), whose operands have two element types, unlike those of Ternary.
extern KernelSlot<void(const Tensor& out, const Tensor& condition, const Tensor& a, const Tensor& b)>
    where_kernel;

// Returns condition ? a : b, which broadcast, in the promoted dtype of a and b.
// Errors: DTypeError unless `condition` is bool; ShapeError; DeviceError.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

// Comparisons and logical ops. Results are bool. Errors: ShapeError, DeviceError.
Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
inline Tensor eq(const Tensor& a, Number b) { return raw::eq(a, operand(b, a)); }
inline Tensor ne(const Tensor& a, Number b) { return raw::ne(a, operand(b, a)); }
inline Tensor lt(const Tensor& a, Number b) { return raw::lt(a, operand(b, a)); }
inline Tensor le(const Tensor& a, Number b) { return raw::le(a, operand(b, a)); }
inline Tensor gt(const Tensor& a, Number b) { return raw::gt(a, operand(b, a)); }
inline Tensor ge(const Tensor& a, Number b) { return raw::ge(a, operand(b, a)); }

}  // namespace gradus::raw
