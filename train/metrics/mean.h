// Mean: the mean of numbers over batches and ranks.
#pragma once

#include <cstdint>

#include "gradus/distributed/group/group.h"
#include "gradus/tensor/tensor.h"

namespace gradus::metrics {

struct MeanOptions {
  dist::Group group = {};
};

class Mean {
 public:
  explicit Mean(MeanOptions options = {}) : group_(options.group) {}
  // Adds the mean of `count` samples, for example the loss of a batch with its size().
  void update(double value, int64_t count = 1) { sum_ += value * double(count), count_ += count; }
  void update(const Tensor& value, int64_t count = 1) { update(value.item<double>(), count); }
  void reset() { sum_ = 0, count_ = 0; }
  // Returns the mean; NaN without samples. Collective.
  double compute() const;

 private:
  dist::Group group_;
  double sum_ = 0;
  int64_t count_ = 0;
};

}  // namespace gradus::metrics
