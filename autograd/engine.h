// The engine: runs one backward over the nodes of one recording.
#pragma once

#include <functional>
#include <vector>

#include "gradus/autograd/graph/recording_state.h"

namespace gradus::autograd {

struct BackwardPass {
  RecordingState& recording;
  std::vector<Tensor> roots;
  std::vector<Tensor> dys;  // one per root
  // The leaves or outputs of nodes for which gradients are wanted. Null edges count as not reached.
  std::vector<Edge> targets;
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

// Brings a gradient into the form of its value: sums over broadcast dims, casts, moves to the device, and
// makes it channels-last if the value is.
Tensor conform(Tensor gradient, const ValueInfo& value);

}  // namespace gradus::autograd
