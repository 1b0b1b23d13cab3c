// The backward engine: propagates gradients from roots to targets through the nodes of one recording.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gradus/autograd/graph/recording_state.h"

namespace gradus::autograd {

struct BackwardPass {
  RecordingState& recording;
  std::vector<Tensor> roots;
  std::vector<Tensor> dys;  // gradient of the root, one per root
  // The leaves or outputs of nodes whose gradients the pass delivers. Null edges count as not reached.
  std::vector<Edge> targets;
  // Per target: whether its gradient is first read after this pass, or after its part of a pass in two parts.
  // Empty: false for all.
  std::vector<char> used_later = {};
  // Per target, for PassInParts: whether the first part computes it. Empty: the pass has one part.
  std::vector<char> first = {};
  // True: the recording stays open, records the ops of this backward, and keeps all saved tensors (PyTorch's
  // create_graph and retain_graph).
  bool keep_graph = false;

  // Called once before the first rule runs, with a flag per target: whether the roots lead to it.
  std::function<void(const std::vector<bool>& reached)> begin;
  // Called exactly once per target, as soon as its gradient is known; undefined when none arrived.
  std::function<void(size_t target, Tensor gradient)> deliver;
};

// Runs the pass. Only nodes on a path from a root to a target run, and nodes that run without a gradient
// (Node::runs_without_gradient). Leaves come first, then the newest node; this order is the same on every
// rank. The recordings opened before `recording` record the rules' ops; under keep_graph `recording` itself
// does too. An error thrown by a rule gets the prefix "while running backward of <op> (<module path>)".
void run(BackwardPass& pass);

// Note [Streams of a backward]
// A rule and the conversion of its gradients (conform) run on the stream of the node's forward. Gradients of
// leaves are summed on the current streams of the thread that runs the pass. If the stream that computes a
// gradient differs from the stream that reads it, the engine records an event after the computation, and the
// reading stream waits for the event before its first use: as input of a rule or in a sum, which the reading
// stream computes. When the pass ends, the caller's streams wait for all work that the pass has queued. Then all
// targets are ready, and the caller may overwrite the tensors that the rules have read. A pass on one stream
// records no event.

// Note [Sums of leaves]
// A leaf with several consumers receives several gradients. On a GPU the launch of a kernel costs more than most
// of these sums. Sums into leaves whose gradients are read only after the pass (`used_later`) are therefore
// deferred and batched into few launches. The order of the additions is unchanged. Deferred terms hold at most
// kMaxPendingBytes bytes.

// Note [Two parts]
// A pipeline stage sends the gradients of its inputs to the previous stage; the gradients of its parameters are
// needed later (zero-bubble schedules: B and W). The first part runs the edges that lead to the inputs. For the
// other edges of the same nodes it keeps the gradients of the node's outputs and the saved tensors of those edges'
// rules. A node that computes all its gradients at once (JointRuns::kTogether, checkpoint, user-defined Function)
// runs in the first part, which keeps the gradients for the second. The second part runs the remaining edges and
// the nodes that lead to parameters alone. Each edge is run exactly once. A node that communicates with other
// ranks (Node::runs_without_gradient) runs once: in the first part if it leads to an input, else in the second.
// This choice is the same on every rank.

// Runs a pass in two parts. The recording must not be finished in between.
class PassInParts {
 public:
  explicit PassInParts(BackwardPass pass);
  ~PassInParts();
  // Delivers the targets of the first part.
  void run_first();
  // Calls begin, and delivers the other targets.
  void run_rest();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns the gradient with the shape, dtype and device of its value: sums over broadcast dims, casts, copies to
// the device, and makes the result channels-last if the value is. A sparse gradient that fits is returned as is.
// Errors: ShapeError if the gradient has fewer dims than the value, or does not broadcast from it.
Tensor conform(Tensor gradient, const ValueInfo& value);

}  // namespace gradus::autograd
