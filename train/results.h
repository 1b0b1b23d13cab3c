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

namespace internal {

void put(io::Checkpoint& c, const std::string& name, const Sums& s);
Sums get_sums(const io::Checkpoint& c, const std::string& name);
void put_history(io::Checkpoint& c, const std::vector<EpochResult>& history);
std::vector<EpochResult> get_history(const io::Checkpoint& c);

}  // namespace internal
}  // namespace gradus::training
