// What a kind of device offers beside kernels: memory, streams, events and copies. The tensor core knows
// devices by this interface alone. A program that is linked with //tensor/cuda:backend has one for CUDA.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gradus/tensor/base/device.h"
#include "gradus/tensor/runtime/devices.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus::internal {

using gradus::DeviceProperties;

// Handles are the runtime's own. `device` is an index. Every function throws an Error that names the call
// and the device, unless it is noexcept.
class DeviceRuntime {
 public:
  using StreamHandle = void*;
  using EventHandle = void*;

  virtual ~DeviceRuntime() = default;

  // Errors: DeviceError that says why there is none: no driver, an old driver, no device.
  virtual int device_count() = 0;
  // Errors: as device_count; DeviceError where the index is out of range, or the device cannot run kernels.
  virtual void check(int device) = 0;
  virtual DeviceProperties properties(int device) = 0;

  // Returns null where there is no room.
  virtual void* allocate(int device, int64_t bytes) = 0;
  // Waits until the device is idle.
  virtual void free(int device, void* p) = 0;
  // Memory of the host from which devices copy by themselves, and to which they do. `device` is one that the
  // program uses. Null where there is no room.
  virtual void* allocate_pinned(int device, int64_t bytes) = 0;
  // Waits until all devices are idle.
  virtual void free_pinned(void* p) = 0;

  virtual StreamHandle create_stream(int device) = 0;
  virtual void destroy_stream(StreamHandle stream) noexcept = 0;  // what is queued still runs
  virtual bool is_idle(StreamHandle stream) = 0;
  virtual void synchronize(StreamHandle stream) = 0;
  virtual void synchronize_device(int device) = 0;
  // Runs f(data) on a thread of the runtime's, behind what is queued. f calls no function of the runtime.
  virtual void call_on_host(StreamHandle stream, void (*f)(void*), void* data) = 0;

  virtual EventHandle create_event(int device, bool timed) = 0;
  virtual void destroy_event(EventHandle event) noexcept = 0;
  virtual void record(EventHandle event, StreamHandle stream) = 0;
  virtual void wait(StreamHandle stream, EventHandle event) = 0;
  virtual bool is_done(EventHandle event) = 0;
  virtual void synchronize_event(EventHandle event) = 0;
  // Returns the device's time between timed events of one device; nothing until both have happened.
  virtual std::optional<double> seconds_between(EventHandle from, EventHandle to) = 0;

  // Queues a copy between memory of the host and of devices. A pageable source may change when this returns;
  // a pageable destination has its bytes then.
  virtual void copy(void* to, const void* from, int64_t bytes, StreamHandle stream) = 0;
  virtual void copy_between(void* to, int to_device, const void* from, int from_device, int64_t bytes,
                            StreamHandle stream) = 0;

  // Throws what kernels on a stream that the host has waited for have found wrong with values: an index out
  // of range, as IndexError. It is thrown once.
  virtual void throw_found(StreamHandle stream) = 0;
  // The same for all streams of a device, one error at a time.
  virtual void throw_found_on(int device) = 0;
};

// Returns the runtime of a type of device, or null where the program was built without one.
DeviceRuntime* find_device_runtime(DeviceType type) noexcept;
// Returns the runtime of this very device. `op` is the name in errors.
// Errors: DeviceError where the program was built without one, and as DeviceRuntime::check; StateError in a
// child of fork() whose parent used the device.
DeviceRuntime& runtime_of(Device device, const char* op = "device");
// Called before main(), by the file that defines the runtime.
void set_device_runtime(DeviceType type, DeviceRuntime* runtime);

// An event of a runtime.
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

// A stream of a runtime. Whoever needs it to live holds it.
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
  void synchronize() const { runtime_.synchronize(handle_); }
  void throw_found() const { runtime_.throw_found(handle_); }
  void wait(const NativeEvent& event) const { runtime_.wait(handle_, event.handle()); }
  void record(const NativeEvent& event) const { runtime_.record(event.handle(), handle_); }
  std::unique_ptr<NativeEvent> record() const {
    auto event = std::make_unique<NativeEvent>(runtime_, device_.index);
    record(*event);
    return event;
  }

 private:
  DeviceRuntime& runtime_;
  Device device_;
  DeviceRuntime::StreamHandle handle_;
};

// Returns the native stream behind a handle; null for streams of CPU devices.
std::shared_ptr<NativeStream> native_stream(const Stream& stream);
// Returns that of the device's current stream.
std::shared_ptr<NativeStream> current_native_stream(Device device);

}  // namespace gradus::internal
