// Context: all implicit (thread-local) state in one value: open recordings, autocast, default device, current
// streams, random generator, number of threads, module path, observer. Code that runs user code on another thread
// (loader workers, ranks as threads, communication) installs a copy of its caller's Context there:
//
//   std::thread([ctx = Context::current().snapshot()]() mutable { ContextScope scope(ctx); ... });
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gradus/tensor/base/device.h"
#include "gradus/tensor/base/dtype.h"
#include "gradus/tensor/base/ref.h"
#include "gradus/tensor/runtime/capture.h"
#include "gradus/tensor/runtime/job.h"
#include "gradus/tensor/runtime/observer.h"
#include "gradus/tensor/runtime/random.h"
#include "gradus/tensor/runtime/stream.h"

namespace gradus {

class AutogradSlot;
class Tensor;
struct DrawBase;

struct Context {
  // Open recordings (gradient tapes) of this thread's ops, oldest first. Their type is defined in autograd/.
  std::vector<Ref<Counted>> recordings;
  // The node whose backward rule is running. is_last_run: the rule will not run again, so it may consume its
  // saved tensors.
  AutogradSlot* running_node = nullptr;
  bool is_last_run = false;
  // Autocast settings; null: off. Their type is defined in autograd/.
  Ref<Counted> autocast;

  Device device = kCPU;         // default device of parameters and batches
  std::vector<Stream> streams;  // current streams that differ from their device's default
  std::shared_ptr<RandomGenerator> generator = new_generator();
  std::vector<std::shared_ptr<DrawBase>> draw_bases;  // of open DeviceDraws::Scopes
  int threads = 0;  // threads of parallel_for; 0: OMP_NUM_THREADS, else usable_cores()
  // Convolutions on GPUs run only engines of cuDNN whose results repeat bit for bit. All other kernels always do.
  bool deterministic = false;
  // Matrix products and convolutions of f32 on GPUs may run on tensor cores, which round operands to TF32 (10 bits of
  // mantissa): several times faster, with relative errors of the terms of about 1e-3.
  bool tf32 = false;
  // Gradients of 16-bit weights and biases of convolutions that arrive in f32, as under autocast, are computed on GPUs
  // from operands in f32, and not rounded to 16 bits before. Costs copies of the images and of their gradients.
  bool exact_weight_gradients = false;
  // Skip kernels that have an operand on the meta device. Ops then accept meta operands together with operands on other
  // devices, and the contents of results are undefined.
  bool skip_meta_kernels = false;
  std::vector<const std::string*> module_path;  // names of the modules being called, outermost first
  Ref<Observer> observer;                       // receives kernels and other timed ranges; null: none
  Ref<Capture> capture;                         // records the kernels of a step (CapturedStep); null: none
  // A training step's kernel is being replayed. Kernels then keep no copies of weights in other layouts.
  bool replays_training = false;
  Ref<Job> job;  // this rank's job if ranks are threads; null: the process's

  // Returns the calling thread's context. A thread starts with a context of its own.
  static Context& current() { return current_ ? *current_ : own(); }
  // Returns a copy for another thread, without the capture. The recordings and the generator are shared with
  // this Context.
  Context snapshot() const;
  std::string module_path_text() const;  // "layer3.1.conv2"; "" outside modules

 private:
  friend class ContextScope;
  static Context& own();
  static std::shared_ptr<RandomGenerator> new_generator();
  static constinit thread_local Context* current_;
};

// Makes `context`, which must outlive the scope, the calling thread's context for the lifetime of the scope. A
// capture goes on in `context`.
// Scopes, also StreamScope, end on the thread that opened them, the innermost first.
class ContextScope {
 public:
  explicit ContextScope(Context& context);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  Context* previous_;
};

// Returns this thread's observer, or null. Costs one load while no thread of the process is observed.
inline Observer* observer() {
  if (internal::observers.load(std::memory_order_relaxed) == 0) [[likely]]
    return nullptr;
  return Context::current().observer.get();
}

// Announces a range to this thread's observer and begins it. The range ends when the result is destroyed.
[[nodiscard]] inline RunningRange observed(const Range& range) {
  Observer* o = observer();
  return o ? RunningRange(*o, range) : RunningRange();
}

// Reports to this thread's observer which of an op's kernels runs.
inline void report_algorithm(std::string_view kernel) {
  if (Observer* o = observer()) [[unlikely]]
    o->algorithm_selected(kernel);
}

// Returns this thread's capture if it is recording, else null.
inline Capture* recording_capture() {
  Capture* const capture = Context::current().capture.get();
  return capture && capture->is_recording() ? capture : nullptr;
}

// Returns the id of this thread's capture, or 0. Values that ops keep for later calls, such as casts of
// parameters, belong to one capture or to none: in a replay nothing would compute them again.
inline uint64_t capture_id() {
  const Capture* capture = Context::current().capture.get();
  return capture ? capture->id : 0;
}

// Suspends this thread's capture during its lifetime.
class CapturePause {
 public:
  CapturePause() : capture_(std::move(Context::current().capture)) {}
  ~CapturePause() { Context::current().capture = std::move(capture_); }
  CapturePause(const CapturePause&) = delete;
  CapturePause& operator=(const CapturePause&) = delete;

 private:
  Ref<Capture> capture_;
};

// Returns the stream on which this thread launches kernels of `device`.
Stream current_stream(Device device);

// Makes `stream` the current stream of its device on this thread, for the lifetime of the scope.
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
