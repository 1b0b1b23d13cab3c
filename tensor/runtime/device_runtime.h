// DeviceRuntime: the interface of a device backend (memory, streams, events and copies, as in the CUDA runtime
// API), through which the tensor core uses devices. //tensor/cuda:backend links an implementation for CUDA.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "gradus/tensor/base/device.h"
#include "gradus/tensor/runtime/devices.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus::internal {

using gradus::DeviceProperties;

// Handles are opaque, and owned by the caller until they are destroyed. `device` is a device index. Any thread may
// call any function; calls may change the calling thread's current device of the CUDA runtime.
// Errors of all functions that are not noexcept: DeviceFailure naming the failed call and the device.
class DeviceRuntime {
 public:
  using StreamHandle = void*;
  using EventHandle = void*;
  using GraphHandle = void*;

  virtual ~DeviceRuntime() = default;

  // Errors: DeviceError with the reason if there is no device: no driver, an old driver, no GPU.
  virtual int device_count() = 0;
  // Throws unless the device can be used.
  // Errors: as device_count; DeviceError if the index is out of range or the device cannot run the kernels.
  virtual void check(int device) = 0;
  virtual DeviceProperties properties(int device) = 0;
  // Makes a device the calling thread's current one. A call for an event on a thread without a device would use
  // device 0, and occupy its memory.
  virtual void make_current(int device) = 0;

  // Returns uninitialized device memory, or null if memory is short.
  virtual void* allocate(int device, int64_t bytes) = 0;
  // Frees memory of allocate(), after waiting until the device is idle.
  virtual void free(int device, void* p) = 0;
  // Returns page-locked (pinned) host memory, or null if memory is short. `device` is any device in use.
  virtual void* allocate_pinned(int device, int64_t bytes) = 0;
  // Frees memory of allocate_pinned(), after waiting until all devices are idle.
  virtual void free_pinned(void* p) = 0;

  virtual StreamHandle create_stream(int device) = 0;
  virtual void destroy_stream(StreamHandle stream) noexcept = 0;  // queued work still runs
  virtual bool is_idle(StreamHandle stream) = 0;
  // Block the calling thread until the work queued so far on a stream, or on all streams of a device, has
  // finished.
  virtual void synchronize(StreamHandle stream) = 0;
  virtual void synchronize_device(int device) = 0;
  // Runs f(data) on a thread of the runtime after the work queued on the stream. f must not call the runtime.
  virtual void call_on_host(StreamHandle stream, void (*f)(void*), void* data) = 0;

  // Events have the semantics of CUDA events. Only events created with `timed` record the time.
  virtual EventHandle create_event(int device, bool timed) = 0;
  virtual void destroy_event(EventHandle event) noexcept = 0;
  virtual void record(EventHandle event, StreamHandle stream) = 0;
  // Later work of the stream waits for the event. The host does not wait.
  virtual void wait(StreamHandle stream, EventHandle event) = 0;
  virtual bool is_done(EventHandle event) = 0;
  // Blocks the calling thread until the event has happened.
  virtual void synchronize_event(EventHandle event) = 0;
  // Returns the seconds of device time between two timed, recorded events of one device; nullopt until both have
  // happened.
  virtual std::optional<double> seconds_between(EventHandle from, EventHandle to) = 0;

  // Queues a copy between host and device memory. Pinned host memory is in use until the copy has finished. With
  // pageable host memory, the call returns when a source may be modified or a destination has been written.
  virtual void copy(void* to, const void* from, int64_t bytes, StreamHandle stream) = 0;
  // Queues a copy from one device to another.
  virtual void copy_between(void* to, int to_device, const void* from, int from_device, int64_t bytes,
                            StreamHandle stream) = 0;

  // Work that the calling thread queues on `stream` after begin_capture() is recorded instead of run. end_capture()
  // returns the recorded work as a graph. Neither it nor destroy_graph() waits for launches of a graph.
  virtual void begin_capture(StreamHandle stream) = 0;
  virtual GraphHandle end_capture(StreamHandle stream) = 0;
  virtual void launch(GraphHandle graph, StreamHandle stream) = 0;
  virtual void destroy_graph(GraphHandle graph) noexcept = 0;

  // Kernels cannot throw. A kernel that reads an invalid value, such as an index out of range, reports the value,
  // and this function throws the kernel's error (IndexError) on the host. Returns if no kernel of the stream has
  // reported one. The host must have synchronized with the stream. Each error is thrown once.
  virtual void throw_kernel_errors(StreamHandle stream) = 0;
  // As throw_kernel_errors, for all streams of a device. A call throws at most one error; further errors are
  // thrown by later calls.
  virtual void throw_kernel_errors_on_device(int device) = 0;
};

// Returns the runtime of a device type, or null if the program was built without one.
DeviceRuntime* find_device_runtime(DeviceType type) noexcept;
// Returns the runtime of a device for which DeviceRuntime::check() succeeds. `op` is the name in errors.
// Errors: DeviceError if the program was built without a runtime; those of DeviceRuntime::check(); StateError in a
// child of fork() whose parent used the device.
DeviceRuntime& runtime_of(Device device, const char* op = "device");
// Registers a runtime of static storage duration. Called before main(), by the initializer of a static variable in
// the file that defines the runtime.
void register_device_runtime(DeviceType type, DeviceRuntime* runtime);

// Owns an event of a runtime.
class NativeEvent {
 public:
  NativeEvent(DeviceRuntime& runtime, int device, bool timed = false)
      : runtime_(runtime), handle_(runtime.create_event(device, timed)) {}
  ~NativeEvent() { runtime_.destroy_event(handle_); }
  NativeEvent(const NativeEvent&) = delete;
  NativeEvent& operator=(const NativeEvent&) = delete;

  DeviceRuntime::EventHandle handle() const { return handle_; }
  bool is_done() const { return runtime_.is_done(handle_); }
  void synchronize() const { runtime_.synchronize_event(handle_); }
  std::optional<double> seconds_since(const NativeEvent& earlier) const {
    return runtime_.seconds_between(earlier.handle_, handle_);
  }

 private:
  DeviceRuntime& runtime_;
  DeviceRuntime::EventHandle handle_;
};

// Owns a stream of a runtime. All users of a stream share its NativeStream through std::shared_ptr.
class NativeStream {
 public:
  NativeStream(DeviceRuntime& runtime, Device device)
      : runtime_(runtime), device_(device), handle_(runtime.create_stream(device.index)) {}
  ~NativeStream() { runtime_.destroy_stream(handle_); }
  NativeStream(const NativeStream&) = delete;
  NativeStream& operator=(const NativeStream&) = delete;

  DeviceRuntime& runtime() const { return runtime_; }
  Device device() const { return device_; }
  DeviceRuntime::StreamHandle handle() const { return handle_; }
  bool is_idle() const { return runtime_.is_idle(handle_); }
  // While set, the allocator reserves the stream's free memory for it: Note [Memory of a graph], graph_capture.h.
  bool keeps_memory() const { return keeps_memory_; }
  void set_keeps_memory(bool on) { keeps_memory_ = on; }
  // Whether the stream's work is part of an open capture. Events recorded on it then are part of the graph.
  bool is_capturing() const { return is_capturing_; }
  void begin_capture() {
    runtime_.begin_capture(handle_);
    is_capturing_ = true;
  }
  DeviceRuntime::GraphHandle end_capture() {
    is_capturing_ = false;
    return runtime_.end_capture(handle_);
  }
  // Of a stream that waits for an event of a captured one, and so joins the capture.
  void set_capturing(bool on) { is_capturing_ = on; }
  void synchronize() const { runtime_.synchronize(handle_); }
  // Makes the stream's queued work invalid: throw_errors() throws `error` until recover(). The first error counts.
  void fail(std::exception_ptr error) {
    const std::lock_guard lock(failure_mutex_);
    if (!failure_) failure_ = std::move(error);
    has_failed_ = true;
  }
  void recover() {
    const std::lock_guard lock(failure_mutex_);
    failure_ = nullptr;
    has_failed_ = false;
  }
  bool has_failed() const { return has_failed_; }
  // Throws the error of fail(), or one that a kernel of the stream has reported.
  void throw_errors() const {
    if (has_failed()) {
      const std::lock_guard lock(failure_mutex_);
      if (failure_) std::rethrow_exception(failure_);
    }
    runtime_.throw_kernel_errors(handle_);
  }
  void wait(const NativeEvent& event) const { runtime_.wait(handle_, event.handle()); }
  void record(const NativeEvent& event) const { runtime_.record(event.handle(), handle_); }
  // Returns a new event, recorded on this stream.
  std::unique_ptr<NativeEvent> record() const {
    auto event = std::make_unique<NativeEvent>(runtime_, device_.index);
    record(*event);
    return event;
  }

 private:
  DeviceRuntime& runtime_;
  Device device_;
  DeviceRuntime::StreamHandle handle_;
  std::atomic<bool> keeps_memory_{false}, is_capturing_{false}, has_failed_{false};
  mutable std::mutex failure_mutex_;
  std::exception_ptr failure_;
};

// Returns the runtime's stream of a Stream, the public handle (stream.h); null for streams of CPU devices.
std::shared_ptr<NativeStream> native_stream(const Stream& stream);
// As native_stream, for the calling thread's current stream of the device.
std::shared_ptr<NativeStream> current_native_stream(Device device);

}  // namespace gradus::internal
