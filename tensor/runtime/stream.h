// Stream and Event: in-order queues of kernels on a device, with the semantics of CUDA streams and events. The
// stream of cpu:0 runs kernels inline. Streams of cpu:1 and up have worker threads, for tests without GPUs.
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

// A shared handle to a stream. When the last handle is destroyed, queued tasks still run. Thread-safe.
class Stream {
 public:
  // Returns the device's default stream. Errors of of() and create(): for a GPU as runtime_of().
  static Stream of(Device device);
  // Returns a new stream of the device; for cpu:0 its only, inline stream.
  static Stream create(Device device);

  Device device() const { return device_; }
  // Returns whether tasks run at once in the calling thread.
  bool is_inline() const { return queue_ == nullptr; }
  // Queues `task`. Its exception is thrown by synchronize(). An inline stream runs and throws at once. On a
  // GPU's stream the task runs on a host thread and must not call CUDA. May block on cpu:1 and up if queued
  // tasks have much memory (Note [Backlog], backlog.h).
  void enqueue(std::function<void()> task) const;
  // Makes later tasks of this stream wait for `event`, without blocking the host. An error of the event's stream
  // from before the event becomes an error of this stream too. An inline stream calls event.synchronize().
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

// A point in the task order of a stream.
class Event {
 public:
  Event() = default;  // has already happened
  static Event record(const Stream& stream);
  bool done() const;
  // Blocks the host until the event has happened.
  // Errors: the exception of a task before the event, unless the stream's synchronize() has already thrown it.
  void synchronize() const;

 private:
  friend class Stream;
  std::shared_ptr<internal::EventState> state_;
};

// Blocks until all streams of `device` are idle. Errors: as Stream::synchronize().
void synchronize(Device device);

}  // namespace gradus
