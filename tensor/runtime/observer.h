// Observer: receives callbacks about kernels, module calls, collectives and allocations of the threads that
// have the object as Context::observer. nn::summary counts operations with one; Profiler
// (tensor/profile/profiler.h) times them. Without an observer a kernel call costs one load more.
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
  kBackward,    // the backward rule of a node
  kCollective,  // a collective, including its waits
  kData,        // reading a batch, or waiting for one
  kUser,        // a profile_range of the program
};

// A named interval of work. Its members refer to data of the caller, valid during announce().
struct Range {
  RangeKind kind;
  std::string_view name;
  std::string_view module = {};                 // module path; "": that of the enclosing range
  std::span<const Tensor* const> tensors = {};  // the defined tensors of a kernel, results first
  int64_t bytes = 0;                            // bytes moved, in addition to those of `tensors`
};

// Threads may call one observer concurrently. While an observer needs more than meta_kernel_launched(), its
// owner counts it in internal::observers; otherwise the other functions are not called.
class Observer : public Counted {
 public:
  // Called for a kernel on the meta device, which computes nothing. Tensors as in Range.
  virtual void meta_kernel_launched(const char* op, std::span<const Tensor* const> tensors) {
    (void)op, (void)tensors;
  }

  // Called before a range begins, on the thread that launches it. Returns an id for begin() and end(), or a
  // negative number if the observer ignores the range.
  virtual int64_t announce(const Range& range) { return (void)range, -1; }
  // Called when the range begins and ends, on the thread that runs it. The ranges of a thread nest.
  virtual void begin(int64_t range) { (void)range; }
  virtual void end(int64_t range) noexcept { (void)range; }

  // Called within a kernel's range, on the thread that runs it, with the algorithm that the op has selected. May
  // be called several times, if an algorithm calls the op recursively.
  virtual void algorithm_selected(std::string_view kernel) { (void)kernel; }

  // Called after this thread has allocated memory of a tensor.
  virtual void allocated(Device device) { (void)device; }
};

namespace internal {
// The number of observers of the process that need more than meta_kernel_launched().
inline constinit std::atomic<int> observers{0};
}  // namespace internal

// Begins an announced range on this thread, and ends it when destroyed.
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

// Sets the name of the calling thread, for profiles, debuggers and system tools, truncated to 15 characters.
void name_thread(const std::string& name);

}  // namespace gradus
