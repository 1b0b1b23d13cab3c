// Number: a scalar operand of an op, of kind bool, integer or floating point. The kind follows from the C++ type:
// 2 is an integer, 2.0 floating point, true a bool. Type promotion depends on the kind, not on the value
// (docs/api/dtypes.md).
#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>

#include "gradus/tensor/base/dtype.h"

namespace gradus {

class Number {
 public:
  // Errors: ValueError for an unsigned integer above the largest int64_t.
  template <std::integral T>
  constexpr Number(T value)
      : kind_(std::same_as<T, bool> ? Kind::kBool : Kind::kInteger), integer_(int64_t(value)) {
    if constexpr (std::unsigned_integral<T> && sizeof(T) >= sizeof(int64_t))
      if (integer_ < 0) [[unlikely]]
        throw_too_large(value);
  }
  template <std::floating_point T>
  constexpr Number(T value) : kind_(Kind::kFloating), floating_(static_cast<double>(value)) {}
  Number(f16 value) : Number(float(value)) {}
  Number(bf16 value) : Number(float(value)) {}

  constexpr bool is_floating() const { return kind_ == Kind::kFloating; }
  // Returns the dtype of a tensor with this value: bool, i64 or the default dtype.
  DType dtype() const {
    return kind_ == Kind::kBool ? DType::kBool : kind_ == Kind::kInteger ? DType::kI64 : get_default_dtype();
  }
  // Returns the number as a double. An integer beyond 2^53 is rounded.
  constexpr double to_double() const { return is_floating() ? floating_ : static_cast<double>(integer_); }
  // Returns the value of a bool or integer. Must not be called if is_floating().
  constexpr int64_t integer() const { return integer_; }
  // Returns the number as an integer: truncated, saturated to 64 bits, NaN as 0.
  int64_t to_i64() const;
  // Prints the value, a bool as 0 or 1.
  friend std::ostream& operator<<(std::ostream& out, Number number);
  // Negation. A negated bool is an integer. Integers wrap: the negative of the smallest int64_t is itself.
  constexpr Number operator-() const {
    return is_floating() ? Number(-floating_) : Number(int64_t(-uint64_t(integer_)));
  }

 private:
  enum class Kind : uint8_t { kBool, kInteger, kFloating };
  [[noreturn, gnu::cold]] static void throw_too_large(uint64_t value);

  Kind kind_;
  union {
    int64_t integer_;
    double floating_;
  };
};

}  // namespace gradus
