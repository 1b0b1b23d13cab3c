// Observer: sees what a thread does while the observer is in the thread's Context. nn::summary counts
// operations with one; Profiler (gradus/tensor/profile/profiler.h) times them. While nobody observes, a
// kernel call pays one load.
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
  kModule,      // a call of a module
  kBackward,    // the rule of a node
  kCollective,  // a collective, including its waits
  kData,        // reading a batch, or waiting for one
  kUser,        // named by the program: profile_range
};

// A stretch of work that takes time. Its members refer to data of the caller.
struct Range {
  RangeKind kind;
  std::string_view name;
  std::string_view module = {};  // path of the module that it belongs to; "": the enclosing range's
  std::span<const Tensor* const> tensors = {};  // of a kernel: results first, undefined ones left out
  int64_t bytes = 0;                            // bytes moved, where `tensors` does not tell
};

class Observer : public Counted {
 public:
  // Called for a kernel on the meta device, which does not run. Tensors as in Range.
  virtual void launched(const char* op, std::span<const Tensor* const> tensors) { (void)op, (void)tensors; }

  // Called before a range begins, on this thread or on one that works for it. Returns the range's number, or
  // a negative number when the observer does not want the range.
  virtual int64_t announce(const Range& range) { return (void)range, -1; }
  // Called when the range begins and ends, on the thread that runs it. Ranges of a thread nest.
  virtual void begin(int64_t range) { (void)range; }
  virtual void end(int64_t range) noexcept { (void)range; }

  // Called within a kernel's range, on the thread that runs it, by an op that chose one of several kernels. A
  // kernel that calls the op again, on a simpler problem, chooses again.
  virtual void chose(std::string_view kernel) { (void)kernel; }

  // Returns whether kernels with an operand on the meta device are left out. Ops then take such operands
  // beside those of other devices, and their results mean nothing.
  virtual bool leaves_out_meta() const { return false; }

  // Called when this thread has allocated a tensor's memory.
  virtual void allocated(Device device) { (void)device; }
};

namespace internal {
// The number of observers, in the whole process, that want more than `launched`. It is checked first, because
// that costs least.
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

// Names the calling thread, for profiles, debuggers and system tools. At most 15 characters are kept.
void name_thread(const std::string& name);

}  // namespace gradus
