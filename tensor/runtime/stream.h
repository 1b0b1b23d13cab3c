// Streams: in-order queues of kernels on a device. The stream of cpu:0 runs kernels at once. cpu:1.. have a
// worker thread each and follow the rules of CUDA streams, so that multi-device code is tested without a GPU.
#pragma once

#include <functional>
#include <memory>

#include "gradus/tensor/base/device.h"

namespace gradus {

class Event;
class Stream;
namespace internal {
struct StreamQueue;
struct EventState;
class NativeStream;
std::shared_ptr<NativeStream> native_stream(const Stream& stream);
}  // namespace internal

// A handle to a stream. When the last handle of a stream made by create() is gone, queued tasks still run.
class Stream {
 public:
  // Returns the device's default stream.
  static Stream of(Device device);
  // Returns a new stream of the device. cpu:0 has only its inline stream, and returns that.
  static Stream create(Device device);

  Device device() const { return device_; }
  // Returns whether kernels run in the calling thread.
  bool is_inline() const { return queue_ == nullptr; }
  // Runs `task` after everything enqueued before it. An exception in it surfaces at synchronize().
  void enqueue(std::function<void()> task) const;
  // Makes later tasks of this stream wait for `event`. The host does not wait. An error that the event's
  // stream had met before the event becomes this stream's error too.
  void wait(const Event& event) const;
  // Blocks the host until all enqueued tasks are done.
  // Errors: the first exception of a task since the last call.
  void synchronize() const;

  bool operator==(const Stream& o) const { return device_ == o.device_ && queue_ == o.queue_; }

 private:
  friend class Event;
  friend std::shared_ptr<internal::NativeStream> internal::native_stream(const Stream&);
  Device device_;
  std::shared_ptr<internal::StreamQueue> queue_;
};

// A point in the order of a stream's tasks.
class Event {
 public:
  Event() = default;  // already happened
  static Event record(const Stream& stream);
  bool done() const;
  // Blocks the host until the event has happened.
  // Errors: what a task before the event threw, unless the stream's synchronize() has already thrown it.
  void synchronize() const;

 private:
  friend class Stream;
  std::shared_ptr<internal::EventState> state_;
};

// Blocks until all streams of `device` are idle.
void synchronize(Device device);

}  // namespace gradus
