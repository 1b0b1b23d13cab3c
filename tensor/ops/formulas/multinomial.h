// Scalar formulas of multinomial sampling, shared by the kernels of all devices, which draw the same indices.
//
// Note [Order of running sums]
// The prefix sum at an element of a row is a + (b + c): c is the sum of its group of kGroupWeights elements up to
// this element, b the sum of the previous groups of its chunk of kChunkWeights elements, and a the sum of the
// previous chunks. At the end of a group, b + c becomes b of the next group; at the end of a chunk, a + (b + c)
// becomes a. So groups can be summed in parallel, yet prefix sums are monotonic and a weight of 0 does not change
// them: with any rounding, an element of weight 0 is never drawn.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::draws {

inline constexpr int kGroupWeights = 16, kChunkWeights = 32 * kGroupWeights;

GRADUS_HD bool is_weight(double w) { return w >= 0 && w <= std::numeric_limits<double>::max(); }
GRADUS_HD bool is_total(double sum) { return sum > 0 && sum <= std::numeric_limits<double>::max(); }

// With replacement, the first element is drawn whose prefix sum exceeds threshold() = u * total. The product must
// not be rounded up to `total`, so it is limited to `below`, the largest double below `total`.
GRADUS_HD double number_below(double total) {
  return std::bit_cast<double>(std::bit_cast<uint64_t>(total) - 1);
}
GRADUS_HD double threshold(double u, double total, double below) { return std::min(u * total, below); }

// Without replacement, the elements with the smallest arrival times are drawn: exponential random numbers divided
// by the weights. Their order has the distribution of successive draws without replacement.
GRADUS_HD double arrival_time(double u, double weight) {
  // A time that overflows is still before that of a weight of 0.
  constexpr double kMax = std::numeric_limits<double>::max();
  return weight > 0 ? std::min(-m::log1p(-u) / weight, kMax) : std::numeric_limits<double>::infinity();
}

}  // namespace gradus::draws
