// MarkovSource: a source of random characters with known entropy, which is the minimal loss of a model that
// predicts the next character.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gradus::data {

struct MarkovSourceOptions {
  int64_t characters = 27;
  int64_t order = 2;  // k: number of previous characters that a character depends on
  uint64_t seed = 0;
};

// A stationary Markov chain of order k: after characters x1, ..., xk (xk the last),
//   P(c) proportional to exp(w1(x1,c) + ... + wk(xk,c)),  w_i uniform in [-2.5, 2.5), drawn once.
// So the next character depends on all of the last k characters.
class MarkovSource {
 public:
  // Errors: ValueError for fewer than 2 or more than 256 characters, an order below 1, and if
  // characters^(order + 1), the number of probabilities, exceeds 2^22.
  explicit MarkovSource(MarkovSourceOptions options = {});

  // Returns the probability of each next character. A state is the last k characters as digits of a number in base
  // `characters`, oldest first.
  std::span<const double> next(int64_t state) const;
  // Returns the stationary distribution of states, computed by power iteration.
  const std::vector<double>& stationary() const { return stationary_; }

  // Returns the entropy of a character given all previous characters, in nats.
  double entropy() const { return rate_; }
  // Returns the joint entropy of `length` consecutive characters, in nats.
  // Errors: ValueError for length < 0.
  double entropy(int64_t length) const;

  // Draws `length` consecutive characters, which are a function of `seed` and `stream`.
  std::vector<uint8_t> draw(int64_t length, uint64_t seed, uint64_t stream) const;

 private:
  void find_stationary();

  MarkovSourceOptions options_;
  int64_t states_;
  std::vector<double> next_;  // [states,characters]
  std::vector<double> stationary_;
  double rate_ = 0;
};

}  // namespace gradus::data
