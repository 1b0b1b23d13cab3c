// Observer: sees what a thread does while it is in the thread's Context. nn::summary counts operations
// with one, Profiler (tensor/profile/profiler.h) times them. While nobody observes, a kernel call pays
// one load for it.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "gradus/tensor/base/device.h"
#include "gradus/tensor/base/ref.h"

namespace gradus {

class Tensor;

enum class RangeKind : uint8_t {
  kKernel,
  kModule,      // a module's call
  kBackward,    // a node's rule
  kCollective,  // a collective, with what it waits for
  kData,        // reading a batch, or waiting for one
  kUser,        // named by the program: profile_range
};

// Something that takes time. Views of what the caller holds.
struct Range {
  RangeKind kind;
  std::string_view name;
  std::string_view module = {};  // the path of the module that it belongs to; "": that of the range around it
  std::span<const Tensor* const> tensors = {};  // of a kernel: results first, undefined ones left out
  int64_t bytes = 0;                            // that it moves, where there are no tensors to tell
};

class Observer : public Counted {
 public:
  // A kernel on the meta device, which does not run. Tensors as in Range.
  virtual void launched(const char* op, std::span<const Tensor* const> tensors) { (void)op, (void)tensors; }

  // A range is about to begin, on this thread or on one that works for it. Returns its number; below 0:
  // of no interest.
  virtual int64_t announce(const Range& range) { return (void)range, -1; }
  // It begins, and ends, on this thread. Ranges of a thread nest.
  virtual void begin(int64_t range) { (void)range; }
  virtual void end(int64_t range) noexcept { (void)range; }

  // A tensor's memory was allocated by this thread.
  virtual void allocated(Device device) { (void)device; }
};

namespace internal {
// How many observers want more than `launched`, in the whole process: the first question, because
// it costs least.
inline constinit std::atomic<int> observers{0};
}  // namespace internal

// An announced range that runs on this thread for the object's lifetime.
class RunningRange {
 public:
  RunningRange() = default;
  RunningRange(Ref<Observer> observer, int64_t id) : observer_(std::move(observer)), id_(id) {
    if (id_ >= 0) observer_->begin(id_);
  }
  RunningRange(Observer& observer, const Range& range)
      : RunningRange(Ref<Observer>(&observer), observer.announce(range)) {}
  ~RunningRange() {
    if (id_ >= 0) observer_->end(id_);
  }
  RunningRange(RunningRange&& o) noexcept
      : observer_(std::move(o.observer_)), id_(std::exchange(o.id_, -1)) {}
  RunningRange& operator=(RunningRange&& o) noexcept {
    if (id_ >= 0) observer_->end(id_);
    observer_ = std::move(o.observer_), id_ = std::exchange(o.id_, -1);
    return *this;
  }

 private:
  Ref<Observer> observer_;
  int64_t id_ = -1;
};

// Names the calling thread, for profiles, debuggers and tools of the system: at most 15 characters are kept.
void name_thread(const std::string& name);

}  // namespace gradus
