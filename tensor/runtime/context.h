// Context: all implicit state of a thread of work in one value. A thread points to one; whatever runs user
// code on another thread (loader workers, ranks as threads, communication) installs its caller's.
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

struct Context {
  // Open recordings that see this thread's ops, oldest first; autograd owns their meaning.
  std::vector<Ref<Counted>> recordings;
  // The node whose rule runs now, and whether it is for the last time (then the rule may consume
  // what it saved).
  AutogradSlot* running_node = nullptr;
  bool last_run = false;
  // How differentiable ops cast their operands; null: not at all. autograd owns its meaning.
  Ref<Counted> autocast;

  Device device = kCPU;         // where layers put their parameters
  std::vector<Stream> streams;  // current streams that differ from their device's default
  std::shared_ptr<RandomGenerator> generator = std::make_shared<RandomGenerator>();
  int threads = 0;             // of parallel_for; 0: usable_cores()
  bool deterministic = false;  // refuse kernels that may differ from run to run; none on the CPU does
  std::vector<const std::string*> module_path;  // names of the modules being called, outermost first
  Ref<Observer> observer;                       // sees kernels and other ranges of time; null: nobody
  Ref<Job> job;                                 // this rank's, when ranks are threads; null: the process's

  // The calling thread's context; a thread starts with one of its own.
  static Context& current() { return current_ ? *current_ : own(); }
  // A copy for another thread: same recordings, generator and settings.
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

// Makes `context` the calling thread's for its lifetime. The context must outlive the scope.
class ContextScope {
 public:
  explicit ContextScope(Context& context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  Context* previous_;
};

// Who observes this thread; null when nobody does. Costs a load while nobody observes any thread.
inline Observer* observer() {
  if (internal::observers.load(std::memory_order_relaxed) == 0) [[likely]]
    return nullptr;
  return Context::current().observer.get();
}

// A range of this thread's, until the result goes.
[[nodiscard]] inline RunningRange observed(const Range& range) {
  Observer* o = observer();
  return o ? RunningRange(*o, range) : RunningRange();
}

// The stream that kernels on `device` launch on now.
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
