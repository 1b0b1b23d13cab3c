// RandomNumbers: a Philox stream of random numbers for one transform and sample, keyed by one draw of the
// generator of the constructing thread's Context. Not thread-safe; arguments are not checked.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <utility>

#include "gradus/tensor/runtime/context.h"

namespace gradus::data::internal {

class RandomNumbers {
 public:
  RandomNumbers() : key_(Context::current().generator->next()) {}

  // Uniform in [low, high).
  double uniform(double low = 0, double high = 1) {
    const auto [hi, lo] = next();
    return low + (high - low) * uniform_f64(hi, lo);
  }
  // True with probability p.
  bool bernoulli(double p) { return uniform() < p; }
  // Uniform over 0, 1, ..., n - 1; n >= 1.
  int64_t uniform_int(int64_t n) {
    const auto [hi, lo] = next();
    const uint64_t bits = (uint64_t(hi) << 32) | lo;
    return static_cast<int64_t>((static_cast<unsigned __int128>(bits) * static_cast<uint64_t>(n)) >> 64);
  }
  // Standard normal (Box-Muller).
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  // Gamma-distributed with shape > 0 and scale 1 (Marsaglia and Tsang 2000).
  double gamma(double shape) {
    if (shape < 1) {
      const double power = std::pow(1 - uniform(), 1 / shape);
      return gamma(shape + 1) * power;
    }
    const double d = shape - 1. / 3, c = 1 / std::sqrt(9 * d);
    while (true) {
      const double x = normal(), root = 1 + c * x;
      if (root <= 0) continue;
      const double v = root * root * root;
      if (std::log(1 - uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
    }
  }
  // Beta-distributed with both parameters `alpha` > 0.
  double beta(double alpha) {
    const double a = gamma(alpha), b = gamma(alpha);
    if (a + b > 0) return a / (a + b);
    return bernoulli(0.5) ? 1 : 0;  // a and b underflowed
  }

 private:
  std::pair<uint32_t, uint32_t> next() {
    if (used_ == 4) {
      words_ = philox(key_.seed, key_.stream, counter_++);
      used_ = 0;
    }
    used_ += 2;
    return {words_[used_ - 2], words_[used_ - 1]};
  }

  PhiloxKey key_;
  uint64_t counter_ = 0;
  std::array<uint32_t, 4> words_{};  // the last Philox block
  size_t used_ = 4;                  // number of words of it that have been returned
};

}  // namespace gradus::data::internal
