// Mean: of numbers that are seen batch by batch, on all ranks.
#pragma once

#include <cstdint>

#include "gradus/distributed/group/group.h"
#include "gradus/tensor/tensor.h"

namespace gradus::metrics {

struct MeanOptions {
  dist::Group group = {};
};

// The mean of numbers that were seen over the batches, as of a loss.
class Mean {
 public:
  explicit Mean(MeanOptions options = {}) : group_(options.group) {}
  // Counts `value` as that of `count` samples: the mean loss of a batch as that of its size().
  void update(double value, int64_t count = 1) { sum_ += value * double(count), count_ += count; }
  void update(const Tensor& value, int64_t count = 1) { update(value.item<double>(), count); }
  void reset() { sum_ = 0, count_ = 0; }
  // Returns the mean; NaN for no samples. Collective.
  double compute() const;

 private:
  dist::Group group_;
  double sum_ = 0;
  int64_t count_ = 0;
};

}  // namespace gradus::metrics
