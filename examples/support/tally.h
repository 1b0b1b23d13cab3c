// Tally: how well a pass over the data goes, over all ranks.
#pragma once

#include <cstdint>

#include "gradus/data/dataset.h"
#include "gradus/tensor/tensor.h"

namespace gradus::examples {

// Sums over samples.
struct Sums {
  double loss = 0;
  int64_t correct = 0, seen = 0;
  int64_t correct_in_5 = 0;  // the target is among the five largest; where a program asks

  Sums& operator+=(const Sums& s);
  double mean_loss() const { return seen ? loss / double(seen) : 0; }
  double accuracy() const { return seen ? double(correct) / double(seen) : 0; }
  double accuracy_in_5() const { return seen ? double(correct_in_5) / double(seen) : 0; }
  bool operator==(const Sums&) const = default;
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

// How many rows of the logits [N,classes] have the target i64[N] among their k largest values; of equal
// values the first counts as the larger. A row whose target or any other value is NaN is wrong for k = 1.
// Counts the first `rows` rows; -1: all.
int64_t count_correct(const Tensor& logits, const Tensor& target, int64_t k = 1, int64_t rows = -1);

// What a batch of an evaluation adds: its losses one by one [N] and its logits; samples that are there a
// second time (Batch::padding) do not count.
Sums score(const Tensor& losses, const Tensor& logits, const data::Batch& b);

}  // namespace gradus::examples
