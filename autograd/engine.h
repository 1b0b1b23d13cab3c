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
  // Whose gradients are wanted: leaves, or outputs of nodes; null ones are not reached.
  std::vector<Edge> targets;
  // The recording goes on afterward: it sees this backward's own ops, and nothing it needs
  // again is consumed.
  bool keep_graph = false;

  // Called once before the first rule runs: which targets the roots lead to.
  std::function<void(const std::vector<bool>& reached)> begin;
  // Called exactly once per target, as soon as its gradient is known; undefined when none arrived.
  std::function<void(size_t target, Tensor gradient)> deliver;
};

// Runs the pass. Only nodes that lead from the roots to a target run: leaves first, then the newest node
// first, which is the same order on every rank; and those that run without a gradient (Node). Rules' ops are
// seen by the recordings opened before `recording` (and by itself under keep_graph). Errors of a rule come
// with "while running backward of <op> (<module path>)" before them.
void run(BackwardPass& pass);

// Brings a gradient into the form of the value it belongs to: sums over broadcast dims, casts, moves.
Tensor conform(Tensor gradient, const ValueInfo& value);

}  // namespace gradus::autograd
