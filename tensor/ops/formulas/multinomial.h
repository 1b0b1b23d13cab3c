// Draws of indices by weights: what all devices compute, in one order, so that they draw the same indices.
//
// Note [Order of running sums]
// The running sum at an element of a row is a + (b + c). c sums the elements of its group, up to this one,
// one by one. b is the sum of the groups before it in its chunk, and a that of the chunks before it. At the
// end of a group b + c becomes b of the next one, and at the end of a chunk a + (b + c) becomes a. So sums
// can be computed side by side, and still they never fall from one element to the next, and a weight of 0
// does not change them: whatever is rounded, an element of weight 0 is not drawn.
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

// With replacement the first element is drawn whose running sum is above u times the total. Rounding must
// not take this product to the total, above which there is no sum. `below` is the number before the total.
GRADUS_HD double number_below(double total) {
  return std::bit_cast<double>(std::bit_cast<uint64_t>(total) - 1);
}
GRADUS_HD double border(double u, double total, double below) { return std::min(u * total, below); }

// Without replacement the elements with the smallest of these numbers are drawn: exponential random numbers,
// each divided by its weight. Their order has the distribution of draws one after another.
GRADUS_HD double arrival(double u, double weight) {
  return weight > 0 ? -m::log1p(-u) / weight : std::numeric_limits<double>::infinity();
}

}  // namespace gradus::draws
