// MarkovSource: a source of random characters whose entropy is known, and with it the least loss of a model
// that predicts the next one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gradus::data {

struct MarkovSourceOptions {
  int64_t characters = 27;
  int64_t order = 2;  // how many characters before one it depends on
  uint64_t seed = 0;
};

// A stationary Markov chain. After characters x1, ..., xk (k the order, xk the last), the next one is c with
// probability proportional to exp(w1(x1,c) + ... + wk(xk,c)). The w are drawn once, uniform in [-2.5, 2.5).
// So every character of the last k matters, and none by itself says what follows.
class MarkovSource {
 public:
  // Errors: ValueError for fewer than 2 or more than 256 characters, an order below 1, and for more than 2^22
  // probabilities, characters^(order + 1).
  explicit MarkovSource(MarkovSourceOptions options = {});

  // Returns the probability of each next character. A state is the last k characters as a number in base
  // `characters`, the oldest first.
  std::span<const double> next(int64_t state) const;
  // Returns the probability of each state, in the long run: the stationary distribution, by power iteration.
  const std::vector<double>& stationary() const { return stationary_; }

  // Returns the entropy of a character given all before it, in nats.
  double entropy() const { return rate_; }
  // Returns the entropy of `length` characters in a row, in nats.
  // Errors: ValueError for length < 0.
  double entropy(int64_t length) const;

  // Draws `length` characters in a row. The same numbers of `seed` and `stream` give the same ones.
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
