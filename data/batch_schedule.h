// BatchSchedule: cuts one epoch's order into global batches, and each of them into the ranks' shares.
#pragma once

#include <cstdint>

#include "gradus/data/dataloader.h"

namespace gradus::data::internal {

// Note [Shares]
// Global batch k holds the next samples of the order. Rank r gets its samples r, r + ranks, and so on. So
// the number of ranks does not change which samples a step sees. All ranks have the same number of
// batches, and no batch is empty. Less than a global batch may be left over at the end; Uneven says what
// happens to it. When another number of ranks has begun an epoch, the rest of it is cut like a whole epoch
// of that many samples.
class BatchSchedule {
 public:
  // Cuts the order's positions [start, size). Uses the options batch_size, global_batch_size (or 0),
  // world_size, drop_last and uneven.
  BatchSchedule(const DataLoaderOptions& options, int64_t start, int64_t size);

  int64_t batches() const { return batches_; }
  // Batch k has positions [begin(k), end(k)). Positions from `size` on are repeated samples: see index_of.
  int64_t begin(int64_t k) const { return start_ + k * global_; }
  int64_t end(int64_t k) const { return k + 1 < batches_ ? begin(k + 1) : end_; }
  // Returns the index into the order: positions beyond its end start over at 0.
  int64_t index_of(int64_t position) const { return position % size_; }
  bool is_repeated(int64_t position) const { return position >= size_; }
  // Returns the position after k batches, which is `size` after the last one.
  int64_t position_after(int64_t k) const { return k < batches_ ? begin(k) : size_; }

 private:
  int64_t start_, size_, global_;
  int64_t batches_ = 0;
  int64_t end_ = 0;  // end of the last batch
};

}  // namespace gradus::data::internal
