// Scalar formulas of norms, clipping and unscaling of gradients, shared by the kernels of all devices.
// GRADUS_HD marks host and device functions.
#pragma once

#include <limits>

#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::raw {

// Returns the maximum, or NaN if either is NaN.
GRADUS_HD double max_or_nan(double a, double b) { return b > a || b != b ? b : a; }

// Returns the p-norm for p > 0, given sum |x|^p, or max |x| for infinite p.
GRADUS_HD double p_norm_of_sum(double sum, double p) {
  if (p == std::numeric_limits<double>::infinity()) return sum;
  return p == 2 ? m::sqrt(sum) : m::pow(sum, 1 / p);
}

// Returns the factor that scales gradients of this norm to max_norm; 1e-6 avoids a division by 0.
GRADUS_HD double clip_factor(double norm, double max_norm) { return max_norm / (norm + 1e-6); }
// Returns whether to multiply by the factor: below 1, or NaN, so that a NaN norm makes the gradients NaN.
GRADUS_HD bool needs_clipping(double factor) { return !(factor >= 1); }

// Returns v clamped to [low, high]; NaN stays NaN.
template <class T> GRADUS_HD T clamped(T v, T low, T high) { return v < low ? low : v > high ? high : v; }

template <class T> GRADUS_HD bool is_finite(T v) { return m::abs(v) <= std::numeric_limits<T>::max(); }

}  // namespace gradus::raw
