// Computes the bounds of an epoch's global batches: full batches as long as enough samples remain, then at
// most one smaller batch as drop_last and Uneven define. DataLoader has checked the options: world_size >= 1,
// batch sizes >= 1, and a first key of global_batch_sizes of 0.
#include "gradus/data/batch_schedule.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace gradus::data::internal {
namespace {

// Returns a * b, or the largest int64 on overflow: a user may pass the largest int64 for "all samples".
int64_t product_or_max(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

}  // namespace

int64_t global_batch_size(const DataLoaderOptions& o, int64_t shown) {
  if (!o.global_batch_sizes.empty()) return std::prev(o.global_batch_sizes.upper_bound(shown))->second;
  return o.global_batch_size > 0 ? o.global_batch_size : product_or_max(o.batch_size, o.world_size);
}

BatchSchedule::BatchSchedule(const DataLoaderOptions& o, const LoaderState& from, int64_t size)
    : size_(size), shown_(from.shown), bounds_{std::min(from.samples, size)} {
  int64_t remaining = size_ - begin(0);
  while (true) {
    const int64_t full = global_batch_size(o, shown_after(batches()));
    if (remaining < full) break;
    bounds_.push_back(bounds_.back() + full);
    remaining -= full;
  }
  if (remaining == 0 || o.drop_last) return;
  const int64_t ranks = o.world_size;
  if (o.uneven == Uneven::kBalance && remaining < ranks && batches() > 0) {
    bounds_.back() = size_;  // adds the remaining samples to the previous batch
    return;
  }
  int64_t last = remaining;
  if (o.uneven == Uneven::kDrop) last = remaining / ranks * ranks;
  if (o.uneven == Uneven::kPad) last = (remaining + ranks - 1) / ranks * ranks;
  if (o.uneven == Uneven::kBalance) last = std::max(remaining, ranks);
  if (last > 0) bounds_.push_back(bounds_.back() + last);
}

}  // namespace gradus::data::internal
