// Scalar formulas of scans along a row, shared by the kernels of all devices.
#pragma once

#include <limits>

#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::formulas {

// log(e^a + e^b) = max + log1p(e^(min - max)), NaN if a or b is NaN. -infinity is the neutral element.
GRADUS_HD double log_add_exp(double a, double b) {
  const bool b_is_high = b > a || b != b;
  const double high = b_is_high ? b : a, low = b_is_high ? a : b;
  // inf - inf is NaN: the sum of two equal infinities is that infinity.
  if (high == low && m::abs(high) > std::numeric_limits<double>::max()) return high;
  return high + m::log1p(m::exp(low - high));
}

}  // namespace gradus::formulas
