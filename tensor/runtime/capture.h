// Capture: the interface through which ops take part in the recording of a step that is replayed
// (CapturedStep, autograd/captured_step.h). The calling thread's capture is Context::capture.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gradus/tensor/base/device.h"
#include "gradus/tensor/base/ref.h"

namespace gradus {

class Storage;
class Stream;
namespace internal {
struct KernelCall;
}

// The graph of a step that was captured on a GPU.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
  // Destroys the graph, which is not launched again: the step is recorded anew. Launches that are queued still run.
  // Thread-safe.
  virtual void destroy() noexcept = 0;
};

// Takes part in the launches of a graph whose kernels wait for other processes: collectives. All processes make each step
// together, by replay() or skip().
class ReplayHook : public Counted {
 public:
  // Calls `launch`, which queues the graph on the current stream, if all processes replay this recording. Else returns
  // false: the step's function must run.
  virtual bool replay(const std::function<void()>& launch) = 0;
  // For a process that runs the function, to record it or not. Returns whether all processes do the same.
  virtual bool skip(bool is_recording) = 0;
  // Called once at the end of the recording.
  virtual void recorded(const std::shared_ptr<CapturedGraph>& graph) = 0;
  virtual void failed(const std::exception_ptr& error) noexcept = 0;
};

class Capture : public Counted {
 public:
  const uint64_t id = ++last_id;  // unique in the process

  virtual Device device() const = 0;  // of the step
  // False in the steps before the recording, in which a capture on a GPU tells optimizers to prepare their states.
  virtual bool is_recording() const = 0;

  // Called after a kernel of this thread has run, or was queued on a GPU. Copies the arguments.
  virtual void add(const internal::KernelCall& call) = 0;
  // Called after this thread has allocated a tensor's memory.
  virtual void allocated(const Storage& storage) = 0;
  // On a GPU: keeps memory alive that work other than kernels uses, such as collectives. Called before that work is
  // queued.
  virtual void use(const Ref<Storage>& storage) = 0;
  // On a GPU: returns a second stream, whose work is part of the graph. It begins after the work that the step's stream
  // has in the first call, and the end of the recording waits for it.
  virtual Stream side_stream() = 0;
  // Runs `f` now and at this point of each replay, for work that depends on state of the host, such as an
  // optimizer's step counts. Kernels that f launches are not recorded. `op` is the name in errors.
  // Errors: StateError on a GPU, where the host takes no part in a replay.
  virtual void run_on_host(const char* op, std::function<void()> f) = 0;
  // Calls `f` on the host after each replay, but not now.
  virtual void after_replay(std::function<void()> f) = 0;
  // Whether this capture has allocated the storage.
  virtual bool is_own(const Storage& storage) const = 0;

  // Adds a condition of a replay: if `f` returns false, the step is recorded again.
  void valid_while(std::function<bool()> f) { conditions_.push_back(std::move(f)); }
  bool is_valid() const {
    return std::ranges::all_of(conditions_, [](const auto& holds) { return holds(); });
  }
  // Notes that the step sets the gradient of `leaf`, an autograd::Leaf. Of several calls the first one counts;
  // `was_empty`: it comes from a backward, and there was no gradient.
  void add_leaf(const Ref<Counted>& leaf, bool was_empty) {
    if (known_leaves_.insert(leaf.get()).second) leaves_.push_back({leaf, was_empty});
  }
  struct CapturedLeaf {
    Ref<Counted> leaf;
    bool was_empty;
  };
  const std::vector<CapturedLeaf>& leaves() const { return leaves_; }
  bool has_leaf(const Counted& leaf) const { return known_leaves_.contains(&leaf); }

  Ref<ReplayHook> replay_hook;  // on a GPU; null: a launch concerns no other process

 private:
  static inline constinit std::atomic<uint64_t> last_id{0};
  std::vector<std::function<bool()>> conditions_;
  std::vector<CapturedLeaf> leaves_;
  std::unordered_set<const Counted*> known_leaves_;
};

namespace internal {
// Incremented when tensors of a module are exchanged for others (nn::ParameterScope), which a replay does not see.
inline constinit std::atomic<uint64_t> exchanged_parameters{0};
}  // namespace internal

// Does nothing unless this thread is recording a step.
// Errors: StateError "[op] cannot be captured: REASON", with the name of the op that the user called.
void refuse_capture(std::string_view op, const char* reason);

}  // namespace gradus
