// BatchSchedule: how one epoch's order is cut into global batches, and those into the ranks' shares.
#pragma once

#include <cstdint>

#include "gradus/data/dataloader.h"

namespace gradus::data::internal {

// Note [Shares]
// Global batch k holds the next samples of the order, and of those rank r gets number r, r + ranks, ...:
// which samples a step sees does not depend on the number of ranks. All ranks have the same number of
// batches, and none is empty. What is left at the end is less than a global batch; Uneven says what becomes
// of it. The rest of an epoch that another number of ranks has begun is cut like an epoch of so many samples.
class BatchSchedule {
 public:
  // The order's positions from `start` to `size`. Of the options it needs batch_size, global_batch_size (or
  // 0), world_size, drop_last and uneven.
  BatchSchedule(const DataLoaderOptions& options, int64_t start, int64_t size);

  int64_t batches() const { return batches_; }
  // Batch k has positions [begin(k), end(k)). Those from `size` on are repeated samples: see index_of.
  int64_t begin(int64_t k) const { return start_ + k * global_; }
  int64_t end(int64_t k) const { return k + 1 < batches_ ? begin(k + 1) : end_; }
  // The position in the order: beyond its end it begins again.
  int64_t index_of(int64_t position) const { return position % size_; }
  bool is_repeated(int64_t position) const { return position >= size_; }
  // Where the epoch is when k batches are done; the end, with all of them.
  int64_t position_after(int64_t k) const { return k < batches_ ? begin(k) : size_; }

 private:
  int64_t start_, size_, global_;
  int64_t batches_ = 0;
  int64_t end_ = 0;  // of the last batch
};

}  // namespace gradus::data::internal
