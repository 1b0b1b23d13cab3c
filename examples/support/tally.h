// Tally: how well a pass over the data goes, over all ranks.
#pragma once

#include <cstdint>

#include "gradus/tensor/tensor.h"

namespace gradus::examples {

// Sums over samples.
struct Sums {
  double loss = 0;
  int64_t correct = 0, seen = 0;

  Sums& operator+=(const Sums& s) { return loss += s.loss, correct += s.correct, seen += s.seen, *this; }
  double mean_loss() const { return seen ? loss / double(seen) : 0; }
  double accuracy() const { return seen ? double(correct) / double(seen) : 0; }
};

// Each rank adds what it has seen itself; now and then all call reduce.
class Tally {
 public:
  explicit Tally(const Sums& total = {}) : total_(total) {}

  void add(const Sums& s) { mine_ += s; }
  // Adds to the total what all ranks have seen since the last time, and returns that. Collective.
  Sums reduce();
  // Over all ranks, as of the last reduce: the same on all of them.
  const Sums& total() const { return total_; }

 private:
  Sums total_, mine_;
};

// How many rows of the logits f32[N,classes] have their largest value at the target i64[N].
int64_t count_correct(const Tensor& logits, const Tensor& target);

}  // namespace gradus::examples
