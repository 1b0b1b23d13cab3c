// Scalar formulas of multinomial sampling: drawing indices of a row of f64 weights with probabilities in
// proportion to the weights. The kernels of all devices share the formulas, and so draw the same indices from the
// same uniform random numbers u in [0, 1).
//
// Note [Order of running sums]
// Floating-point sums depend on their order, so all kernels add the weights of a row in the same order. A row is
// divided into chunks of kChunkWeights weights, and a chunk into groups of kGroupWeights weights. The running sum
// (inclusive prefix sum) at a weight is a + (b + c), where
//   a  sums the previous chunks of the row, one after another,
//   b  sums the previous groups of the chunk, one after another,
//   c  sums the weights of the group up to and including this weight, one after another.
// So groups can be summed in parallel. The running sums never decrease, and a weight of 0 does not change them,
// whatever the rounding: an element of weight 0 is never drawn with replacement.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::draws {

inline constexpr int kGroupWeights = 16, kChunkWeights = 32 * kGroupWeights;

// Whether a number is a valid weight: finite and not negative. NaN is not valid.
GRADUS_HD bool is_valid_weight(double w) { return w >= 0 && w <= std::numeric_limits<double>::max(); }
// Whether a sum is a valid total of a row: finite and positive.
GRADUS_HD bool is_valid_total(double sum) { return sum > 0 && sum <= std::numeric_limits<double>::max(); }

// With replacement, each u draws the first element whose running sum exceeds threshold() = u * total. The
// product may round up to `total`, which no running sum exceeds, so it is limited to `below` =
// previous_double(total), the largest double less than `total`. `total` must satisfy is_valid_total().
GRADUS_HD double previous_double(double total) {
  return std::bit_cast<double>(std::bit_cast<uint64_t>(total) - 1);
}
GRADUS_HD double threshold(double u, double total, double below) { return std::min(u * total, below); }

// Without replacement, each element has a u of its own, and the elements with the smallest arrival times are
// drawn, in this order; of equal times the smaller index is first. The arrival time is an exponential random
// number with the weight as its rate, so the order has the distribution of successive draws without replacement.
// The time is not negative, and infinite for a weight of 0.
// Source: Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006.
GRADUS_HD double arrival_time(double u, double weight) {
  // A time that overflows is still before that of a weight of 0.
  constexpr double kMax = std::numeric_limits<double>::max();
  return weight > 0 ? std::min(-m::log1p(-u) / weight, kMax) : std::numeric_limits<double>::infinity();
}

}  // namespace gradus::draws
