// Checks of the sizes and options that a caller passes to an op: Checked, an int64_t whose arithmetic throws
// ValueError on overflow, and checks of bounds, with the usual maxima. Errors begin with the name `op`.
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
// Maximum of each kernel size, stride, padding, dilation and scale factor. The product of two such numbers fits
// into 64 bits.
inline constexpr int64_t kMaxExtent = (int64_t{1} << 31) - 1;
// Maximum size of an axis for which an op such as interpolate computes a table with an entry per position.
inline constexpr int64_t kMaxTable = int64_t{1} << 27;
// Maximum number of tensors that an op splits its input into.
inline constexpr int64_t kMaxSplits = int64_t{1} << 24;

// Checks that min <= value <= max. `what` names the option in the error.
// Errors: ValueError with the violated bound and `value`.
void check_bounds(std::string_view op, std::string_view what, int64_t value, int64_t min,
                  int64_t max = kMaxExtent);

// Checks height and width alike.
void check_bounds(std::string_view op, std::string_view what, Size2 value, int64_t min,
                  int64_t max = kMaxExtent);

// Checks that `value` without its fraction fits into the integer dtype `dtype`. NaN does not fit. u8 also accepts
// the integers -255 to -1 (not as floating point), of which the op stores the low 8 bits, as PyTorch does: -3
// becomes 253. Floating dtypes and bool accept every value.
// Errors: ValueError with `value` and `dtype`.
void check_fits(std::string_view op, Number value, DType dtype);

// Throws the ValueError for an overflow of `a sign b`, where sign is '+', '-' or '*'.
[[noreturn]] void throw_overflow(std::string_view op, int64_t a, char sign, int64_t b);

// An int64_t whose +, - and * throw ValueError naming `op` on overflow. Other operators, such as / and
// unary -, convert it to int64_t, and their result is not checked any more. Right operands of other integer
// types convert to int64_t without a check. The text of `op` must outlive the object.
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
  // Deleted: the Checked number must be the left operand.
  template <std::integral T> friend Checked operator+(T, Checked) = delete;
  template <std::integral T> friend Checked operator-(T, Checked) = delete;
  template <std::integral T> friend Checked operator*(T, Checked) = delete;

 private:
  std::string_view op_;
  int64_t value_;
};

}  // namespace gradus
