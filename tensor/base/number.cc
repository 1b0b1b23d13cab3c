// Conversion of a Number to int64_t, printing (a bool as 0 or 1), and the error for too large unsigned integers.
#include "gradus/tensor/base/number.h"

#include <cmath>
#include <limits>
#include <ostream>

namespace gradus {

void Number::throw_too_large(uint64_t value) {
  throw ValueError("Number", value, " is too large for a number beside a tensor: at most 2^63 - 1");
}

int64_t Number::to_i64() const {
  if (!is_floating()) return integer_;
  if (std::isnan(floating_)) return 0;
  if (floating_ >= 0x1p63) return std::numeric_limits<int64_t>::max();
  if (floating_ < -0x1p63) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(floating_);
}

std::ostream& operator<<(std::ostream& out, Number number) {
  return number.is_floating() ? out << number.to_double() : out << number.integer();
}

}  // namespace gradus
