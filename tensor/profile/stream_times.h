// StreamTimes: when kernels on a stream of a device began and ended. Each kernel is between two marks, which
// are events of the device. Nothing waits while marks are made: their times are read when they have happened.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "gradus/tensor/runtime/device_runtime.h"

namespace gradus::internal {

// Returns the host's monotonic clock, ns.
int64_t host_time();

class StreamTimes {
 public:
  enum Side { kBegin, kEnd };

  StreamTimes(const std::shared_ptr<NativeStream>& stream, int number)
      : device(stream->device()), number(number), stream_(stream) {}

  const Device device;
  const int number;  // among the device's streams in this profile, from 1

  // Marks a side of a kernel, behind what is queued on the stream.
  // Errors: as DeviceRuntime::record. The kernel then has no time.
  void mark(int64_t kernel, Side side);

  // Calls f(kernel, side, ns) for marks that have happened, in the stream's order, and forgets them. ns are
  // the device's, since the stream's first mark.
  // Errors: as DeviceRuntime::seconds_between. The mark is forgotten; call again for those behind it.
  template <class F> void collect(F&& f) {
    const std::lock_guard lock(mutex_);
    while (const Mark* mark = next())
      if (mark->kernel >= 0) f(mark->kernel, mark->side, at_);
  }

  // Waits until all marks have happened, and finds out where the device's time is on the host's clock.
  // Errors: what the device has met.
  void wait();

  // Returns when the first mark happened, on the host's clock. Each mark and each wait tells it better.
  int64_t start() const { return start_; }

 private:
  struct Mark {
    int64_t kernel;
    Side side;
    int64_t made;  // on the host's clock
    std::shared_ptr<NativeEvent> event;
  };

  const Mark* next();
  std::shared_ptr<NativeEvent> last();

  const std::weak_ptr<NativeStream> stream_;
  std::mutex mutex_;
  std::deque<Mark> marks_;                          // that have not been collected
  std::vector<std::shared_ptr<NativeEvent>> free_;  // to be recorded again
  Mark latest_{};                                   // the last that was collected
  int64_t at_ = 0;                                  // its time
  // An event happens after it was recorded; on an idle stream at once. So this is the largest difference.
  std::atomic<int64_t> start_{INT64_MIN};
};

}  // namespace gradus::internal
