// ProfileSession: the record of a Profiler. Several threads write to it at once.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "gradus/tensor/profile/profiler.h"
#include "gradus/tensor/profile/stream_times.h"
#include "gradus/tensor/tensor.h"

namespace gradus::internal {

// Gives each distinct text a number.
class Names {
 public:
  int id_of(std::string_view text);
  const std::string& operator[](int id) const { return texts_[static_cast<size_t>(id)]; }

 private:
  std::unordered_map<std::string, int> ids_;
  std::vector<std::string> texts_;
};

struct TimeSpan {
  int64_t begin = 0, end = -1;  // ns; end = -1: it has not ended
  int64_t inner = 0;            // ns spent in events within it that are work

  bool has_ended() const { return end >= 0; }
  int64_t length() const { return end - begin; }
  int64_t own() const { return length() - inner; }
};

struct ProfileEvent {
  RangeKind kind;
  bool in_backward;
  int name;    // index into Names
  int shapes;  // index into Names: "f32[32,64] f32[64,10]"
  int module;  // index into Names
  int kernel;  // index into Names: of a kernel, "winograd", or "seen pixels, onednn"
  int thread;  // the thread that runs it; before it begins, the one that announced it
  int64_t parent = -1;
  Device runs_on = kCPU;  // kCPU also for what runs on a thread of cpu:1
  TimeSpan host = {};     // on the thread; of a device's kernel, its launch
  int stream = -1;        // of a device's kernel, index of its stream
  // Of a device's kernel, since the stream's first mark; in a snapshot, by the host's clock. -1: unknown.
  TimeSpan device = {.begin = -1};
  int64_t bytes, flops;

  bool is_on_device() const { return runs_on != kCPU; }
  const TimeSpan& time() const { return is_on_device() ? device : host; }
  // Returns whether the event is work, which the tables by op count. Events of other kinds contain work.
  bool is_work() const {
    return kind == RangeKind::kKernel || kind == RangeKind::kCollective || kind == RangeKind::kData;
  }
};

struct ProfileThread {
  std::string name;
  int rank = 0;
  int64_t system_id = 0;
  bool records = false;            // whether it opened the scope
  std::vector<int64_t> open = {};  // events under way, outermost first
};

struct ProfileStream {
  Device device;
  int number;  // among the device's streams, from 1
};

// The bytes that tensors on a device held at one moment.
struct MemorySample {
  Device device;
  int rank;
  int64_t at, live_bytes;
  int64_t event;  // the event under way; -1: none
};

class ProfileSession final : public Observer {
 public:
  explicit ProfileSession(ProfilerOptions options) : options_(options) {}

  // Observer
  int64_t announce(const Range& range) override;
  void begin(int64_t id) override;
  void end(int64_t id) noexcept override;
  void chose(std::string_view kernel) override;
  void allocated(Device device) override;

  void open();
  void close();
  void step();
  void clear();

  // Waits until the times of all kernels are known that were launched on devices before. Where a device fails
  // they stay unknown, and a snapshot says why.
  void wait_for_devices();

  // A copy of everything at one moment.
  struct Snapshot {
    Names names;
    std::vector<ProfileEvent> events;
    std::vector<ProfileThread> threads;
    std::vector<ProfileStream> streams;
    std::string device_error;  // why kernels have no time; "": nothing failed
    std::vector<MemorySample> memory;
    int64_t recorded;  // ns
    int64_t steps;
  };
  Snapshot snapshot() const;

 private:
  int this_thread(int rank);       // returns its index; `rank` is used if the thread is new
  ProfileEvent* find(int64_t id);  // null: cleared
  ProfileEvent* work_around(const ProfileEvent& event);
  void update_active();
  bool is_scheduled() const;

  // Of kernels of devices. No lock is held while a device is called: that may take until the device has done
  // work which other threads are profiled with.
  std::shared_ptr<StreamTimes> current_stream_times(int64_t id, Device device);
  template <class F> void call_device(F&& f) noexcept;  // keeps the error that f throws
  void collect(StreamTimes& stream) noexcept;

  const ProfilerOptions options_;
  std::atomic<bool> active_{false};

  mutable std::mutex mutex_;
  Names names_;
  int64_t first_ = 0;  // the number of events_[0], as events before it were cleared
  std::vector<ProfileEvent> events_;
  std::vector<ProfileThread> threads_;
  std::unordered_map<std::thread::id, int> thread_index_;
  std::vector<std::shared_ptr<StreamTimes>> streams_;
  std::map<std::weak_ptr<NativeStream>, int, std::owner_less<>> stream_index_;
  std::string device_error_;  // the first
  std::vector<MemorySample> memory_;
  bool open_ = false;
  int64_t steps_ = 0, steps_recorded_ = 0;
  int64_t recorded_ = 0;      // ns of the spans that have ended
  int64_t active_since_ = 0;  // when the current span began
};

}  // namespace gradus::internal
