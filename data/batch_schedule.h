// BatchSchedule: divides one epoch's order of samples into global batches. Note [Shares] describes how a
// global batch is divided between ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "gradus/data/dataloader.h"

namespace gradus::data::internal {

// Returns the size of the next full global batch after all ranks together have received `shown` samples in
// all epochs: that of global_batch_sizes or global_batch_size if set, else batch_size * world_size. Callers
// pass options that DataLoader's constructor has checked and completed (world_size, batch sizes >= 1).
int64_t global_batch_size(const DataLoaderOptions& options, int64_t shown);

// Note [Shares]
// Global batch k contains the next samples of the order. Rank r gets samples r, r + ranks, ... of the global
// batch, so if the options give the global batch size, the samples of a full batch do not depend on the
// number of ranks. All ranks have the same number of batches, and no batch is empty. Uneven defines what
// happens to the last samples of an epoch if they are fewer than a global batch. If an epoch resumes with
// another number of ranks, its remaining samples are divided like a whole epoch of that size. Changing batch
// sizes depend on the number of samples shown only, so workers know them in advance.
class BatchSchedule {
 public:
  // Divides positions [from.samples, size) of the order; `size` is the number of samples of an epoch, and
  // from.shown selects batch sizes. With drop_last, `uneven` has no effect: all batches are full.
  BatchSchedule(const DataLoaderOptions& options, const LoaderState& from, int64_t size);

  int64_t batches() const { return int64_t(bounds_.size()) - 1; }  // may be 0
  // Global batch k has positions [begin(k), end(k)). Positions >= size are repeated samples: see index_of.
  int64_t begin(int64_t k) const { return bounds_[size_t(k)]; }
  int64_t end(int64_t k) const { return bounds_[size_t(k) + 1]; }
  // Returns the index into the order: position modulo size.
  int64_t index_of(int64_t position) const { return position % size_; }
  bool is_repeated(int64_t position) const { return position >= size_; }
  // Returns the position after k batches; `size` after the last batch.
  int64_t position_after(int64_t k) const { return k < batches() ? begin(k) : size_; }
  // Returns LoaderState::shown after k batches.
  int64_t shown_after(int64_t k) const { return shown_ + begin(k) - begin(0); }

 private:
  int64_t size_, shown_;         // samples of an epoch; LoaderState::shown before batch 0
  std::vector<int64_t> bounds_;  // batch k is [bounds_[k], bounds_[k + 1])
};

}  // namespace gradus::data::internal
