// A Recording: one open record of computation, from which one backward can run. An object, so that several can be in
// flight: paused, resumed, moved, finished in any order.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <unordered_set>
#include <vector>

#include "gradus/autograd/node.h"

namespace gradus::autograd {

// Told about the gradients of a recording's leaves while its backward runs. The object form of a callback: what an
// all-reduce that packs several gradients needs. Calls come in the order begin, ready (once per leaf), finish.
class GradCallback {
 public:
  virtual ~GradCallback() = default;
  // Before the backward runs: which of the attached tensors the roots lead to (same order as attached).
  virtual void begin(const std::vector<Tensor>& attached, const std::vector<bool>& reached) {
    (void)attached, (void)reached;
  }
  // A leaf is done: its gradient, or undefined when none arrived. Returns the gradient to keep; undefined with
  // `defer` set means that finish() will deliver it.
  virtual Tensor ready(const Tensor& param, const Tensor& grad, bool& defer) {
    (void)param, (void)defer;
    return grad;
  }
  // After the last leaf: the deferred gradients, also of parameters that this recording did not reach.
  virtual std::vector<std::pair<Tensor, Tensor>> finish() { return {}; }
  // The recording ended without a backward, or the backward threw: forget everything.
  virtual void abandon() {}
};

// The state behind a Recording. Ops reach it through Context::recordings.
class RecordingState final : public Counted {
 public:
  explicit RecordingState(std::vector<Ref<Leaf>> leaves);
  ~RecordingState() override;

  bool has_leaf(const Leaf* leaf) const { return leaves_set_.count(leaf) != 0; }
  void add_leaf(const Ref<Leaf>& leaf);
  const std::vector<Ref<Leaf>>& leaves() const { return leaves_; }

  bool finished() const { return finished_; }
  // Forgets all nodes; those that belong to no other recording drop their rules and edges.
  void finish();

  void enlist(Membership& m);
  void delist(Membership& m);

 private:
  std::vector<Ref<Leaf>> leaves_;
  std::unordered_set<const Leaf*> leaves_set_;
  std::mutex mutex_;  // guards the list of nodes
  Membership* nodes_ = nullptr;
  std::atomic<bool> finished_{false};
};

// Opens `state` to the calling thread's ops until closed; the newest is innermost.
void open_recording(const Ref<RecordingState>& state);
void close_recording(const RecordingState* state);
bool is_open(const RecordingState* state);

// Runs the backward of `state` from `roots` and calls `deliver(leaf index, gradient or undefined)` exactly once per leaf,
// as soon as it is known. Ops in it are recorded by the recordings opened before `state` alone. Does not finish `state`.
// Errors: rethrows what a rule throws, with "while running backward of <op> (<module path>)" before it.
struct BackwardPlan {
  std::vector<bool> reached;  // per leaf
};
void run_backward(RecordingState& state, const std::vector<Tensor>& roots, const std::vector<Tensor>& dys,
                  const std::function<void(const BackwardPlan&)>& begin,
                  const std::function<void(size_t leaf, Tensor grad)>& deliver);

}  // namespace gradus::autograd
