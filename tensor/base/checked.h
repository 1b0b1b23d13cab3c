// Overflow-checked 64-bit arithmetic for sizes that a caller passes, and bounds checks of options. An overflow
// throws ValueError.
//
//   const int64_t room = Checked(op, in) * up + front + back - kernel;
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>

#include "gradus/tensor/base/dtype.h"
#include "gradus/tensor/base/number.h"
#include "gradus/tensor/base/shape.h"

namespace gradus {

// Maximum number of elements of a tensor: 2^62 bytes of f64.
inline constexpr int64_t kMaxNumel = int64_t{1} << 59;
// Maximum of kernel sizes, strides, paddings, dilations and factors: a product of two fits into 64 bits.
inline constexpr int64_t kMaxExtent = (int64_t{1} << 31) - 1;
// Maximum size of an axis for which a table of weights or positions is computed.
inline constexpr int64_t kMaxTable = int64_t{1} << 27;
// Maximum number of tensors that an op splits its input into.
inline constexpr int64_t kMaxSplits = int64_t{1} << 24;

// Checks that least <= value <= most. `what` names the option in the error.
// Errors: ValueError with the bound and `value`.
void check_bounds(std::string_view op, std::string_view what, int64_t value, int64_t least,
                  int64_t most = kMaxExtent);

void check_bounds(std::string_view op, std::string_view what, Size2 value, int64_t least,
                  int64_t most = kMaxExtent);

// Checks that `value` without its fraction fits into the integer dtype `dtype`. u8 accepts integers from -255 on,
// of which it stores the low bits (-3 becomes 253). Floating dtypes and bool accept every value.
// Errors: ValueError.
void check_fits(std::string_view op, Number value, DType dtype);

[[noreturn]] void throw_overflow(std::string_view op, int64_t a, char sign, int64_t b);

// An int64_t whose +, - and * throw ValueError naming `op` on overflow.
class Checked {
 public:
  Checked(std::string_view op, int64_t value) : op_(op), value_(value) {}
  operator int64_t() const { return value_; }

  friend Checked operator+(Checked a, Checked b) {
    int64_t r;
    if (__builtin_add_overflow(a.value_, b.value_, &r)) [[unlikely]]
      throw_overflow(a.op_, a.value_, '+', b.value_);
    return {a.op_, r};
  }
  friend Checked operator-(Checked a, Checked b) {
    int64_t r;
    if (__builtin_sub_overflow(a.value_, b.value_, &r)) [[unlikely]]
      throw_overflow(a.op_, a.value_, '-', b.value_);
    return {a.op_, r};
  }
  friend Checked operator*(Checked a, Checked b) {
    int64_t r;
    if (__builtin_mul_overflow(a.value_, b.value_, &r)) [[unlikely]]
      throw_overflow(a.op_, a.value_, '*', b.value_);
    return {a.op_, r};
  }
  template <std::integral T> friend Checked operator+(Checked a, T b) { return a + Checked(a.op_, b); }
  template <std::integral T> friend Checked operator-(Checked a, T b) { return a - Checked(a.op_, b); }
  template <std::integral T> friend Checked operator*(Checked a, T b) { return a * Checked(a.op_, b); }
  // The checked number must be the left operand.
  template <std::integral T> friend Checked operator+(T, Checked) = delete;
  template <std::integral T> friend Checked operator-(T, Checked) = delete;
  template <std::integral T> friend Checked operator*(T, Checked) = delete;

 private:
  std::string_view op_;
  int64_t value_;
};

}  // namespace gradus
