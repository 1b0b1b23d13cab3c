// StreamTimes: begin and end times of the kernels on a GPU stream. Each kernel is enclosed by two marks:
// timed device events. Recording never blocks; times are read after the events have happened. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "gradus/tensor/runtime/device_runtime.h"

namespace gradus::internal {

// Returns the time of the host's monotonic clock in ns.
int64_t host_time();

class StreamTimes {
 public:
  enum Side { kBegin, kEnd };

  StreamTimes(const std::shared_ptr<NativeStream>& stream, int number)
      : device(stream->device()), number(number), stream_(stream) {}

  const Device device;
  const int number;  // among the device's streams in this profile, from 1

  // Records the begin or end of a kernel (an id of the caller, >= 0) after the work queued on the stream.
  // Does nothing if the stream was destroyed.
  // Errors: as DeviceRuntime::record. The time of the kernel is then unknown.
  void mark(int64_t kernel, Side side);

  // Calls f(kernel, side, ns) for the marks that have happened, in stream order, and removes them. ns is the
  // device time since the stream's first mark. f must not call this object.
  // Errors: as DeviceRuntime::seconds_between. The failed mark is removed; another call continues after it.
  template <class F> void collect(F&& f) {
    const std::lock_guard lock(mutex_);
    while (const Mark* mark = next())
      if (mark->kernel >= 0) f(mark->kernel, mark->side, latest_time_);
  }

  // Blocks until all marks have happened, and improves the estimate of start().
  // Errors: those of the device.
  void wait();

  // Returns the estimated host time of the first mark, INT64_MIN before collect() has removed it. Each
  // collected mark and each wait() improves the estimate.
  int64_t start() const { return start_; }

 private:
  struct Mark {
    int64_t kernel;
    Side side;
    int64_t recorded_at;  // host time
    std::shared_ptr<NativeEvent> event;
  };

  const Mark* next();
  std::shared_ptr<NativeEvent> last();

  const std::weak_ptr<NativeStream> stream_;
  std::mutex mutex_;
  std::deque<Mark> marks_;                          // not yet collected
  std::vector<std::shared_ptr<NativeEvent>> free_;  // events for reuse
  Mark latest_{};                                   // the last collected mark
  int64_t latest_time_ = 0;                         // its device time
  // Maximum of (host time of recording - device time) over all marks: an event happens after it was recorded, and
  // on an idle stream at once.
  std::atomic<int64_t> start_{INT64_MIN};
};

}  // namespace gradus::internal
