// Bounds checks of the sizes and options of an op, and the error for overflow: the contracts are in checked.h.
#include "gradus/tensor/base/checked.h"

#include <cmath>
#include <limits>
#include <ostream>

#include "gradus/tensor/base/error.h"

namespace gradus {
namespace {

// `printed` is the value in the error: a Size2 if `value` is one of its components, else `value`.
template <class Value>
void check(std::string_view op, std::string_view what, int64_t value, int64_t min, int64_t max,
           const Value& printed) {
  if (value < min) throw ValueError(op, what, " must be at least ", min, ", got ", printed);
  if (value > max) throw ValueError(op, what, " must be at most ", max, ", got ", printed);
}

}  // namespace

void check_bounds(std::string_view op, std::string_view what, int64_t value, int64_t min, int64_t max) {
  check(op, what, value, min, max, value);
}
void check_bounds(std::string_view op, std::string_view what, Size2 value, int64_t min, int64_t max) {
  check(op, what, value.h, min, max, value);
  check(op, what, value.w, min, max, value);
}

void check_fits(std::string_view op, Number value, DType dtype) {
  dispatch_all(dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      using Limits = std::numeric_limits<T>;
      // A double cannot represent 2^63 - 1, but it can represent 2^63.
      const double v = std::trunc(value.to_double()), end = std::ldexp(1.0, Limits::digits);
      const bool fits =
          value.is_floating()
              ? v >= double(Limits::min()) && v < end
              : value.integer() >= (Limits::is_signed ? Limits::min() : -int64_t(Limits::max())) &&
                    value.integer() <= Limits::max();
      if (!fits) throw ValueError(op, "a value of ", value, " does not fit into ", dtype);
    }
  });
}

void throw_overflow(std::string_view op, int64_t a, char sign, int64_t b) {
  throw ValueError(op, "sizes overflow: ", a, ' ', sign, ' ', b, " does not fit into 64 bits");
}

}  // namespace gradus
