// Context: all implicit state of a thread's work in one value. Each thread has a pointer to one. Code
// that runs user code on another thread (loader workers, ranks as threads, communication) installs its
// caller's Context there.
//
//   std::thread([ctx = Context::current().snapshot()]() mutable { ContextScope scope(ctx); ... });
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gradus/tensor/base/device.h"
#include "gradus/tensor/base/dtype.h"
#include "gradus/tensor/base/ref.h"
#include "gradus/tensor/runtime/job.h"
#include "gradus/tensor/runtime/observer.h"
#include "gradus/tensor/runtime/random.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus {

class AutogradSlot;
class Tensor;
struct DrawBase;

struct Context {
  // Open recordings that see this thread's ops, oldest first. Only autograd knows their type.
  std::vector<Ref<Counted>> recordings;
  // The node whose rule runs now. last_run: the rule will not run again, so it may consume what it saved.
  AutogradSlot* running_node = nullptr;
  bool last_run = false;
  // How differentiable ops cast their operands; null: they do not. Only autograd knows the type.
  Ref<Counted> autocast;

  Device device = kCPU;         // where layers put their parameters
  std::vector<Stream> streams;  // current streams that differ from their device's default
  std::shared_ptr<RandomGenerator> generator = std::make_shared<RandomGenerator>();
  std::vector<std::shared_ptr<DrawBase>> draw_bases;  // of open DeviceDraws::Scopes
  int threads = 0;             // of parallel_for; 0: OMP_NUM_THREADS, else usable_cores()
  bool deterministic = false;  // refuse kernels whose results may differ from run to run; the CPU has none
  std::vector<const std::string*> module_path;  // names of the modules being called, outermost first
  Ref<Observer> observer;                       // sees kernels and other timed ranges; null: none
  Ref<Job> job;                                 // this rank's, where ranks are threads; null: the process's

  // Returns the calling thread's context. A thread starts with a context of its own.
  static Context& current() { return current_ ? *current_ : own(); }
  // Returns a copy for another thread, with the same recordings, generator and settings.
  Context snapshot() const {
    Context copy = *this;
    copy.running_node = nullptr;  // a rule runs on the thread that called it
    copy.last_run = false;
    return copy;
  }
  std::string module_path_text() const;  // "layer3.1.conv2"; "" outside modules

 private:
  friend class ContextScope;
  static Context& own();
  static constinit thread_local Context* current_;
};

// Makes `context` the calling thread's context for the lifetime of the scope. The context must
// outlive the scope.
class ContextScope {
 public:
  explicit ContextScope(Context& context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  Context* previous_;
};

// Returns this thread's observer, or null. While no thread is observed this costs one load.
inline Observer* observer() {
  if (internal::observers.load(std::memory_order_relaxed) == 0) [[likely]]
    return nullptr;
  return Context::current().observer.get();
}

// Announces and begins a range on this thread. It ends with the result's lifetime.
[[nodiscard]] inline RunningRange observed(const Range& range) {
  Observer* o = observer();
  return o ? RunningRange(*o, range) : RunningRange();
}

// Tells this thread's observer which of an op's kernels runs.
inline void tell_kernel(std::string_view kernel) {
  if (Observer* o = observer()) [[unlikely]]
    o->chose(kernel);
}

// Returns the stream on which kernels of `device` launch now.
Stream current_stream(Device device);

// Makes `stream` current for its device.
class StreamScope {
 public:
  explicit StreamScope(Stream stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  Stream previous_;
};

}  // namespace gradus
