#include "gradus/tensor/number.h"

#include <ostream>

namespace gradus {

void Number::throw_too_large(uint64_t value) {
  throw ValueError("Number", value, " is too large for a number beside a tensor: at most 2^63 - 1");
}

std::ostream& operator<<(std::ostream& out, Number number) {
  return number.is_floating() ? out << number.to_double() : out << number.integer();
}

}  // namespace gradus
