// ProfileSession: the Observer (tensor/runtime/observer.h) that stores the events of a Profiler: time ranges
// of kernels, modules and other work, and samples of memory use. Host times are read at begin and end of a
// range; times of GPU kernels come from events on their stream (StreamTimes), after the fact. Thread-safe.
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

// Interns strings: maps each distinct text to an index.
class InternedStrings {
 public:
  int id_of(std::string_view text);
  const std::string& operator[](int id) const { return texts_[static_cast<size_t>(id)]; }

 private:
  std::unordered_map<std::string, int> ids_;
  std::vector<std::string> texts_;
};

struct TimeSpan {
  int64_t begin = 0, end = -1;  // ns; end = -1: not ended
  int64_t inner = 0;            // ns in nested work events

  bool has_ended() const { return end >= 0; }
  int64_t length() const { return end - begin; }
  int64_t own() const { return length() - inner; }
};

// One range: a kernel, module call, backward rule, collective, batch or user range.
struct ProfileEvent {
  RangeKind kind;
  bool in_backward;
  // name, shapes, module and kernel are indices into the session's InternedStrings.
  int name;
  int shapes;  // "f32[32,64] f32[64,10]"
  int module;
  int kernel;             // algorithms of a kernel, such as "winograd" or "strided pixels, onednn"
  int thread;             // index of the thread that runs it; until begin(), of the thread that announced it
  int64_t parent = -1;    // id of the enclosing event of the thread; -1: none
  Device runs_on = kCPU;  // a GPU, or kCPU, also for logical CPU devices
  TimeSpan host = {};     // time on the thread; for a GPU kernel, that of its launch
  int stream = -1;        // index of the stream of a GPU kernel
  // Time of a GPU kernel: relative to the stream's first mark, in a snapshot on the host clock. begin = -1:
  // unknown.
  TimeSpan device = {.begin = -1};
  int64_t bytes, flops;

  bool is_on_device() const { return runs_on != kCPU; }
  const TimeSpan& time() const { return is_on_device() ? device : host; }
  // Returns whether the event is work that tables by op include. Other kinds of events contain work.
  bool is_work() const {
    return kind == RangeKind::kKernel || kind == RangeKind::kCollective || kind == RangeKind::kData;
  }
};

struct ProfileThread {
  std::string name;
  int rank = 0;
  int64_t system_id = 0;
  bool records = false;            // whether it called Profiler::record()
  std::vector<int64_t> open = {};  // ids of the current events, outermost first
};

struct ProfileStream {
  Device device;
  int number;  // among the device's streams, from 1
};

// The memory use of tensors on a device at time `at` (ns, host clock).
struct MemorySample {
  Device device;
  int rank;
  int64_t at, live_bytes;
  int64_t event;  // id of the current event; -1: none
};

class ProfileSession final : public Observer {
 public:
  explicit ProfileSession(ProfilerOptions options) : options_(options) {}

  // Observer
  int64_t announce(const Range& range) override;
  void begin(int64_t id) override;
  void end(int64_t id) noexcept override;
  void algorithm_selected(std::string_view kernel) override;
  void allocated(Device device) override;

  // Begin and end a scope of recording (StateError if one is open), end a step, and remove all records.
  // Events are stored while a scope is open and ProfilerOptions include the current step; else announce()
  // returns -1. begin() and end() ignore events that clear() has removed.
  void open();
  void close();
  void step();
  void clear();

  // Blocks until the times of all GPU kernels launched before are known. If a device fails they remain
  // unknown, and the snapshot has the error.
  void wait_for_devices();

  // A consistent copy of all records. Indices in events refer to these vectors; ids are indices into
  // `events`.
  struct Snapshot {
    InternedStrings names;
    std::vector<ProfileEvent> events;
    std::vector<ProfileThread> threads;
    std::vector<ProfileStream> streams;
    std::string device_error;  // the first error of a device; "": none
    std::vector<MemorySample> memory;
    int64_t recorded;  // ns
    int64_t steps;
  };
  Snapshot snapshot() const;

 private:
  int this_thread(int rank);       // index of the calling thread; `rank` is its rank if it is new
  ProfileEvent* find(int64_t id);  // null if removed by clear()
  ProfileEvent* work_around(const ProfileEvent& event);  // the innermost enclosing work event; null: none
  void update_active();                                  // starts or ends a recording interval
  bool is_scheduled() const;                             // whether the options include the current step

  // Times of GPU kernels. mutex_ is not held while the device runtime is called, because such a call may
  // block until other work of the device has finished.
  std::shared_ptr<StreamTimes> current_stream_times(int64_t id, Device device);
  template <class F> void call_device(F&& f) noexcept;  // calls f and stores its exception in device_error_
  void collect(StreamTimes& stream) noexcept;

  const ProfilerOptions options_;
  std::atomic<bool> active_{false};

  mutable std::mutex mutex_;
  InternedStrings names_;
  int64_t first_ = 0;  // id of events_[0]; earlier events were cleared
  std::vector<ProfileEvent> events_;
  std::vector<ProfileThread> threads_;
  std::unordered_map<std::thread::id, int> thread_index_;
  std::vector<std::shared_ptr<StreamTimes>> streams_;
  std::map<std::weak_ptr<NativeStream>, int, std::owner_less<>> stream_index_;
  std::string device_error_;  // the first error
  std::vector<MemorySample> memory_;
  bool open_ = false;
  int64_t steps_ = 0, steps_recorded_ = 0;
  int64_t recorded_ = 0;      // total ns of ended recording intervals
  int64_t active_since_ = 0;  // begin of the current recording interval
};

}  // namespace gradus::internal
