// Context: all implicit state of a thread of work in one value. A thread points to one; whatever runs user code on
// another thread (loader workers, ranks as threads, communication) installs its caller's.
//
//   std::thread([ctx = Context::current().snapshot()]() mutable { ContextScope scope(ctx); ... });
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gradus/tensor/device.h"
#include "gradus/tensor/dtype.h"
#include "gradus/tensor/job.h"
#include "gradus/tensor/random.h"
#include "gradus/tensor/ref.h"
#include "gradus/tensor/stream.h"

namespace gradus {

class AutogradSlot;
class Tensor;

// Sees each kernel that would have run on the meta device: counts operations without computing them.
class LaunchObserver {
 public:
  virtual ~LaunchObserver() = default;
  // The op's name, and its tensors in the order of the kernel's arguments: results first. Undefined ones are left out.
  virtual void launched(const char* op, std::span<const Tensor* const> tensors) = 0;
};

struct Context {
  // Open recordings that see this thread's ops, oldest first; autograd owns their meaning.
  std::vector<Ref<Counted>> recordings;
  // The node whose rule runs now, and whether it is for the last time (then the rule may consume what it saved).
  AutogradSlot* running_node = nullptr;
  bool last_run = false;
  Ref<Counted> autocast;  // how differentiable ops cast their operands; null: not at all. autograd owns its meaning

  Device device = kCPU;              // where layers put their parameters
  std::vector<Stream> streams;       // current streams that differ from their device's default
  std::shared_ptr<Generator> generator = std::make_shared<Generator>();
  int threads = 0;                   // of parallel_for; 0: usable_cores()
  bool deterministic = false;        // refuse kernels that may differ from run to run; none on the CPU does
  std::vector<const std::string*> module_path;  // names of the modules being called, outermost first
  LaunchObserver* observer = nullptr;  // of kernels on the meta device
  Ref<Job> job;  // this rank's, when ranks are threads; null: the process's

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
