// BatchSchedule: cuts one epoch's order into global batches, and each of them into the ranks' shares.
#pragma once

#include <cstdint>
#include <vector>

#include "gradus/data/dataloader.h"

namespace gradus::data::internal {

// Returns the size of the global batch before which all ranks have got so many samples.
int64_t global_batch_size(const DataLoaderOptions& options, int64_t shown);

// Note [Shares]
// Global batch k holds the next samples of the order. Rank r gets its samples r, r + ranks, and so on. So
// the number of ranks does not change which samples a step sees. All ranks have the same number of
// batches, and no batch is empty. Less than a global batch may be left over at the end; Uneven says what
// happens to it. When another number of ranks has begun an epoch, the rest of it is cut like a whole epoch
// of that many samples. Sizes that change depend on the samples shown alone, so workers know them in advance.
class BatchSchedule {
 public:
  // Cuts the order's positions [from.samples, size). Uses the options batch_size, global_batch_size (or 0),
  // global_batch_sizes (or none), world_size, drop_last and uneven.
  BatchSchedule(const DataLoaderOptions& options, const LoaderState& from, int64_t size);

  int64_t batches() const { return int64_t(bounds_.size()) - 1; }
  // Batch k has positions [begin(k), end(k)). Positions from `size` on are repeated samples: see index_of.
  int64_t begin(int64_t k) const { return bounds_[size_t(k)]; }
  int64_t end(int64_t k) const { return bounds_[size_t(k) + 1]; }
  // Returns the index into the order: positions beyond its end start over at 0.
  int64_t index_of(int64_t position) const { return position % size_; }
  bool is_repeated(int64_t position) const { return position >= size_; }
  // Returns the position after k batches, which is `size` after the last one.
  int64_t position_after(int64_t k) const { return k < batches() ? begin(k) : size_; }
  // Returns LoaderState::shown after k batches.
  int64_t shown_after(int64_t k) const { return shown_ + begin(k) - begin(0); }

 private:
  int64_t size_, shown_;
  std::vector<int64_t> bounds_;  // of the batches
};

}  // namespace gradus::data::internal
