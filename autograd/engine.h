// The engine: runs one backward over the nodes of one recording.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gradus/autograd/graph/recording_state.h"

namespace gradus::autograd {

struct BackwardPass {
  RecordingState& recording;
  std::vector<Tensor> roots;
  std::vector<Tensor> dys;  // one per root
  // The leaves or outputs of nodes for which gradients are wanted. Null edges count as not reached.
  std::vector<Edge> targets;
  // Whether a target's gradient is first used after this pass, or after its part. Empty: none is.
  std::vector<char> used_later = {};
  // Of a backward in two parts: whether a target belongs to the first one. Empty: there is one part.
  std::vector<char> first = {};
  // True: the recording continues after this pass. It records the ops of this backward, and the pass consumes
  // nothing that the recording needs again.
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
// A rule runs on the stream of its forward, and so does the conversion of its gradients to the form of their
// values. Gradients of leaves are made ready on the current streams of the thread that runs the pass before
// they are delivered. If the maker of a gradient and its consumer are on different streams, an event is recorded
// when the gradient is made, and the consumer's stream waits for it before the first use: as input of a rule, or
// in a sum, which the consumer's stream computes. When the pass ends, the caller's streams wait for everything
// that it has queued. So all targets are ready, and the caller may overwrite what the rules have read. On one
// stream no event is made.

// Note [Sums of leaves]
// A leaf that several ops use gets several gradients. On a GPU a launch costs more than most of these sums.
// So where nobody uses a leaf's gradient before the pass ends, its sums wait and are made together, in few
// launches. They are the same sums in the same order. What waits holds kMaxPendingBytes bytes at most.

// Note [Two parts]
// A pipeline's stage owes others the gradients of its inputs. Those of its parameters
// can wait. The first part runs the nodes that lead to the inputs, and of each node the edges that do.
// What a node needs for its other edges stays: the gradients of its outputs, and what the rules of these
// edges saved. Ops whose gradients come from one computation (JointRuns::kTogether, checkpoints,
// functions of users) compute all in the first part, and keep those of the parameters. The second part
// runs the edges that are left, and the nodes that lead to parameters alone. So no edge is run twice, and
// nothing flows along the path of the inputs again. Nodes that other ranks count on run once: in the
// first part if they lead to an input, else in the second; that is the same on every rank.

// Runs a pass in two parts. The recording must stay open in between.
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

// Brings a gradient into the form of its value: sums over broadcast dims, casts, moves to the device, and
// makes it channels-last if the value is.
Tensor conform(Tensor gradient, const ValueInfo& value);

}  // namespace gradus::autograd
