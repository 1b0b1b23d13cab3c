// MarkovSource: transition probabilities (softmax of sums of random weights), their stationary distribution
// by power iteration, entropies, and sampling by inverse transform. GeneratedText: one sequence of the source
// per sample. All random numbers are Philox with the seed as key, so objects are immutable and thread-safe.
#include "gradus/data/sets/generated_text.h"

#include <cmath>
#include <numeric>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus::data {
namespace {

constexpr double kSpread = 2.5;  // weights are uniform in [-kSpread, kSpread)
constexpr int64_t kMaxProbabilities = int64_t{1} << 22;

double uniform(uint64_t key, uint64_t stream, uint64_t counter) {
  const auto words = philox(key, stream, counter);
  return uniform_f64(words[0], words[1]);
}

double entropy_of(std::span<const double> probabilities) {
  double h = 0;
  for (const double p : probabilities)
    if (p > 0) h -= p * std::log(p);
  return h;
}

// Inverse transform sampling: returns the outcome for a uniform number u in [0, 1).
size_t sample_outcome(std::span<const double> probabilities, double u) {
  size_t i = 0;
  for (; i + 1 < probabilities.size() && u >= probabilities[i]; ++i) u -= probabilities[i];
  return i;
}

int64_t checked_states(const MarkovSourceOptions& o) {
  if (o.characters < 2 || o.characters > 256 || o.order < 1)
    throw ValueError("MarkovSource", "expected 2 to 256 characters and an order >= 1, got ", o.characters,
                     " and ", o.order);
  int64_t states = 1;
  for (int64_t k = 0; k < o.order; ++k) {
    states *= o.characters;
    if (states * o.characters > kMaxProbabilities)
      throw ValueError("MarkovSource", "expected at most ", kMaxProbabilities, " probabilities, got ",
                       o.characters, " characters of order ", o.order);
  }
  return states;
}

}  // namespace

MarkovSource::MarkovSource(MarkovSourceOptions options)
    : options_(options), states_(checked_states(options)) {
  const size_t n = size_t(options_.characters), order = size_t(options_.order);
  std::vector<double> w(order * n * n);  // [order, n, n]: distance - 1, previous character, next character
  for (size_t i = 0; i < w.size(); ++i) w[i] = kSpread * (2 * uniform(options_.seed, 0, i) - 1);
  next_.resize(size_t(states_) * n);
  for (size_t s = 0; s < size_t(states_); ++s) {
    double total = 0;
    for (size_t c = 0; c < n; ++c) {
      double logit = 0;
      for (size_t k = 0, rest = s; k < order; ++k, rest /= n) logit += w[(k * n + rest % n) * n + c];
      total += next_[s * n + c] = std::exp(logit);
    }
    for (size_t c = 0; c < n; ++c) next_[s * n + c] /= total;
  }
  compute_stationary();
  for (int64_t s = 0; s < states_; ++s) entropy_rate_ += stationary_[size_t(s)] * entropy_of(next(s));
}

std::span<const double> MarkovSource::next(int64_t state) const {
  const size_t n = size_t(options_.characters);
  return std::span(next_).subspan(size_t(state) * n, n);
}

// All transition probabilities are positive, so power iteration converges from any start.
void MarkovSource::compute_stationary() {
  constexpr int kMaxRounds = 10'000;
  const size_t n = size_t(options_.characters), states = size_t(states_);
  stationary_.assign(states, 1 / double(states));
  double change = 1;
  for (int round = 0; round < kMaxRounds && change > 1e-14; ++round) {
    std::vector<double> after(states);
    for (size_t s = 0; s < states; ++s)
      for (size_t c = 0; c < n; ++c) after[(s * n + c) % states] += stationary_[s] * next_[s * n + c];
    const double total = std::accumulate(after.begin(), after.end(), 0.0);
    change = 0;
    for (size_t s = 0; s < states; ++s) change += std::abs((after[s] /= total) - stationary_[s]);
    stationary_ = std::move(after);
  }
}

double MarkovSource::entropy(int64_t length) const {
  if (length < 0) throw ValueError("MarkovSource", "expected a length >= 0, got ", length);
  if (length >= options_.order)
    return entropy_of(stationary_) + double(length - options_.order) * entropy_rate_;
  // Entropy of the first characters of a state: sums the stationary distribution over the remaining characters.
  int64_t blocks = 1;
  for (int64_t k = 0; k < length; ++k) blocks *= options_.characters;
  std::vector<double> p(size_t(blocks), 0.0);
  for (int64_t s = 0; s < states_; ++s) p[size_t(s / (states_ / blocks))] += stationary_[size_t(s)];
  return entropy_of(p);
}

std::vector<uint8_t> MarkovSource::draw(int64_t length, uint64_t seed, uint64_t stream) const {
  const size_t n = size_t(options_.characters), states = size_t(states_);
  size_t state = sample_outcome(stationary_, uniform(seed, stream, 0));
  std::vector<uint8_t> drawn;
  for (size_t digit_weight = states / n; digit_weight > 0; digit_weight /= n)
    drawn.push_back(uint8_t(state / digit_weight % n));
  while (int64_t(drawn.size()) < length) {
    const size_t c = sample_outcome(next(int64_t(state)), uniform(seed, stream, drawn.size()));
    drawn.push_back(uint8_t(c));
    state = (state * n + c) % states;
  }
  drawn.resize(size_t(length));
  return drawn;
}

GeneratedText::GeneratedText(GeneratedTextOptions options)
    : options_(options),
      characters_(" abcdefghijklmnopqrstuvwxyz"),
      source_({.characters = characters_.size(), .order = options.order, .seed = options.seed}) {
  if (options_.size < 1 || options_.context < 1 || options_.context > int64_t{1} << 20)
    throw ValueError("GeneratedText", "expected a size >= 1 and a context from 1 to 2^20, got ",
                     options_.size, " and ", options_.context);
}

Sample GeneratedText::get(int64_t index) const {
  check_index(index);
  // Stream 0 is used for the source's probabilities.
  const uint64_t stream = 2 * uint64_t(index) + (options_.train ? 1 : 2);
  return internal::next_character_sample(source_.draw(options_.context + 1, options_.seed, stream));
}

double GeneratedText::least_loss() const {
  return (source_.entropy(options_.context + 1) - source_.entropy(1)) / double(options_.context);
}

}  // namespace gradus::data
