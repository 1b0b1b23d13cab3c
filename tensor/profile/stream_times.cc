// StreamTimes: records timed events around the kernels of a stream, and sums the device times between
// successive events that have happened. Events are reused. Marks of kernel -1 (wait()) improve start().
#include "gradus/tensor/profile/stream_times.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

namespace gradus::internal {

int64_t host_time() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void StreamTimes::mark(int64_t kernel, Side side) {
  const std::shared_ptr<NativeStream> stream = stream_.lock();
  if (!stream) return;
  const std::lock_guard lock(mutex_);
  std::shared_ptr<NativeEvent> event;
  if (free_.empty()) {
    event = std::make_shared<NativeEvent>(stream->runtime(), device.index, /*timed=*/true);
  } else {
    event = std::move(free_.back());
    free_.pop_back();
  }
  const int64_t recorded_at = host_time();
  stream->record(*event);
  marks_.push_back({kernel, side, recorded_at, std::move(event)});
}

// Removes the next mark and returns it if it has happened, else null. Updates latest_time_ and start_.
const StreamTimes::Mark* StreamTimes::next() {
  if (marks_.empty()) return nullptr;
  const Mark& mark = marks_.front();
  std::optional<double> seconds;
  try {
    seconds = mark.event->seconds_since(latest_.event ? *latest_.event : *mark.event);
  } catch (...) {
    marks_.pop_front();
    throw;
  }
  if (!seconds) return nullptr;
  latest_time_ += std::llround(*seconds * 1e9);
  start_ = std::max(start_.load(), mark.recorded_at - latest_time_);
  const Mark previous = std::exchange(latest_, std::move(marks_.front()));
  marks_.pop_front();
  if (previous.event) free_.push_back(previous.event);
  return &latest_;
}

// Returns the event of the last mark that is not collected; null if there is none.
std::shared_ptr<NativeEvent> StreamTimes::last() {
  const std::lock_guard lock(mutex_);
  return marks_.empty() ? nullptr : marks_.back().event;
}

void StreamTimes::wait() {
  const auto last_mark = last();
  if (!last_mark) return;
  last_mark->synchronize();
  mark(-1, kEnd);  // on an idle stream: happens when it is recorded, which gives the best estimate of start_
  if (const auto idle = last()) idle->synchronize();
}

}  // namespace gradus::internal
