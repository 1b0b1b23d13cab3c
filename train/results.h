// EpochResult: the result of a test and of the training before it. Checkpoints hold all of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradus/io/checkpoint.h"
#include "gradus/train/tally.h"

namespace gradus::training {

// Over all ranks.
struct EpochResult {
  int64_t epoch = 0;  // completed epochs
  Sums train, test;
  double seconds = 0;  // of training, over all runs
  int64_t images = 0;  // shown in the training

  bool operator==(const EpochResult&) const = default;
};

// Returns the best result, by the mean `best_by` of its test. A mean that is missing or not finite is the
// worst.
const EpochResult& best_of(const std::vector<EpochResult>& results, const std::string& best_by,
                           bool lower_is_better);

namespace internal {

void put(io::Checkpoint& c, const std::string& name, const Sums& s);
Sums get_sums(const io::Checkpoint& c, const std::string& name);
void put_history(io::Checkpoint& c, const std::vector<EpochResult>& history);
std::vector<EpochResult> get_history(const io::Checkpoint& c);

}  // namespace internal
}  // namespace gradus::training
