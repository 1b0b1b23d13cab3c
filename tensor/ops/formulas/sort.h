// Scalar formulas of searchsorted and histc, shared by the kernels of all devices.
#pragma once

#include <algorithm>
#include <cstdint>

#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::formulas {

// Returns the number of elements of the sorted array that are < v, or <= v with past_equals. Binary search
// without branches, which a CPU would mispredict half of the time. as_value(T) converts an element to V.
template <bool past_equals, class V, class T, class AsValue>
GRADUS_HD int64_t bound_index(V v, const T* sorted, int64_t n, AsValue&& as_value) {
  int64_t first = 0;  // an index, not a pointer: for pointers g++ 12 makes a branch
  while (n > 0) {
    const int64_t half = (n + 1) / 2;
    const V middle = as_value(sorted[first + half - 1]);
    first += (past_equals ? middle <= v : middle < v) ? half : 0;
    n -= half;
  }
  return first;
}

// Equal parts of [low, high], where low <= high are finite: bin i has the values v with i <= (v - low) /
// (high - low) * bins < i + 1, and the last bin also `high`.
template <class T> struct HistogramBins {
  T low, high;
  int64_t bins;

  // Returns bins of [low, high], or of [low - 1, high + 1] if the bounds are equal.
  GRADUS_HD static HistogramBins of(T low, T high, int64_t bins) {
    if (low == high) low -= 1, high += 1;
    return {low, high, bins};
  }
  GRADUS_HD bool contains(T v) const { return v >= low && v <= high; }
  // Returns the bin of v, which contains(v): the last one if the quotient is NaN, and the first one if
  // high - low overflows.
  GRADUS_HD int64_t bin_of(T v) const {
    const T position = (v - low) / (high - low) * static_cast<T>(bins);
    return position < static_cast<T>(bins) ? std::min(static_cast<int64_t>(position), bins - 1) : bins - 1;
  }
};

}  // namespace gradus::formulas
