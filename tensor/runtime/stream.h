// Streams: in-order queues of kernels on a device. cpu:0's stream runs inline; cpu:1.. have a worker thread
// each and follow the same rules as CUDA streams, so that multi-device code is tested without a GPU.
#pragma once

#include <functional>
#include <memory>

#include "gradus/tensor/base/device.h"

namespace gradus {

class Event;
namespace internal {
struct StreamQueue;
struct EventState;
}  // namespace internal

// A handle. When the last one of a further stream goes, what is queued still runs.
class Stream {
 public:
  // The device's default stream.
  static Stream of(Device device);
  // A further stream of the device (cpu:0 has only the inline one, which this returns).
  static Stream create(Device device);

  Device device() const { return device_; }
  // Kernels run in the calling thread.
  bool is_inline() const { return queue_ == nullptr; }
  // Runs `task` after everything enqueued before it. An exception in it surfaces at synchronize().
  void enqueue(std::function<void()> task) const;
  // Later tasks of this stream wait for `event`; the host does not. An error that the event's stream had met
  // by then becomes this stream's as well.
  void wait(const Event& event) const;
  // Blocks the host until all enqueued tasks are done.
  // Errors: the first exception of a task since the last call.
  void synchronize() const;

  bool operator==(const Stream& o) const { return device_ == o.device_ && queue_ == o.queue_; }

 private:
  friend class Event;
  Device device_;
  std::shared_ptr<internal::StreamQueue> queue_;
};

// A point in a stream's order.
class Event {
 public:
  Event() = default;  // already happened
  static Event record(const Stream& stream);
  bool done() const;
  // Blocks the host.
  // Errors: what a task before the event threw, unless the stream's synchronize() has told.
  void synchronize() const;

 private:
  friend class Stream;
  std::shared_ptr<internal::EventState> state_;
};

// Blocks until all streams of `device` are idle.
void synchronize(Device device);

}  // namespace gradus
