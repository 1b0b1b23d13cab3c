#include "gradus/data/batch_schedule.h"

#include <algorithm>
#include <limits>

namespace gradus::data::internal {
namespace {

// A batch size that stands for "all samples" may be the largest number there is.
int64_t product_or_max(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

}  // namespace

BatchSchedule::BatchSchedule(const DataLoaderOptions& o, int64_t start, int64_t size)
    : start_(std::min(start, size)),
      size_(size),
      global_(o.global_batch_size > 0 ? o.global_batch_size : product_or_max(o.batch_size, o.world_size)) {
  const int64_t ranks = o.world_size, rest = (size_ - start_) % global_;
  batches_ = (size_ - start_) / global_;
  end_ = begin(batches_);
  if (rest == 0 || o.drop_last) return;
  if (o.uneven == Uneven::kBalance && rest < ranks && batches_ > 0) {
    end_ = size_;
    return;
  }
  int64_t last = rest;
  if (o.uneven == Uneven::kDrop) last = rest / ranks * ranks;
  if (o.uneven == Uneven::kPad) last = (rest + ranks - 1) / ranks * ranks;
  if (o.uneven == Uneven::kBalance) last = std::max(rest, ranks);
  if (last == 0) return;
  ++batches_;
  end_ += last;
}

}  // namespace gradus::data::internal
