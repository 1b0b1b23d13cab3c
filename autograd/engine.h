// The backward engine: propagates gradients from roots to targets through the nodes of one recording. A node
// is a recorded op with its backward rule; a leaf is the graph entry of an attached tensor (graph/node.h); a
// recording is the tape of one forward (RecordingState).
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "gradus/autograd/graph/recording_state.h"

namespace gradus::autograd {

struct BackwardPass {
  RecordingState& recording;
  std::vector<Tensor> roots;  // the differentiated tensors; a root outside of the graph is ignored
  std::vector<Tensor> dys;    // their gradients, one defined tensor per root
  // The leaves or outputs of nodes whose gradients the pass delivers. An edge with a null slot counts as not
  // reached.
  std::vector<Edge> targets;
  // Per target: whether its gradient is first read after this pass, or after the run of a DeferringPass that
  // delivers it. Empty: false for all.
  std::vector<char> read_after_pass = {};
  // Per target: whether a DeferringPass defers it; the others are its inputs. Empty: false for all.
  std::vector<char> deferred = {};
  // True: the recording stays open, records the ops of this backward, and keeps all saved tensors (PyTorch's
  // create_graph and retain_graph).
  bool keep_graph = false;

  // Called once before the first rule runs (of a DeferringPass: of run_deferred), with a flag per target:
  // whether the roots lead to it. May be null.
  std::function<void(const std::vector<bool>& reached)> begin;
  // Called exactly once per target, as soon as its gradient is known; undefined when none arrived. Not null.
  std::function<void(size_t target, Tensor gradient)> deliver;
};

// Runs the pass on the calling thread, and moves from `dys`. Only nodes on a path from a root to a target
// run, and nodes that run without a gradient (NodeTraits::required). Leaves come first, then the newest node;
// this order is the same on every rank. The recordings opened before `recording` record the rules' ops; under
// keep_graph `recording` itself does too. An error thrown by a rule gets the prefix "while running backward
// of <op> (<module path>)". If a rule, begin or deliver throws, the pass finishes the recording
// unless it keeps the graph; otherwise the caller finishes it.
void run(BackwardPass& pass);

// Note [Streams of a backward]
// A rule and the conversion of its gradients (conform_gradient) run on the stream of the node's forward.
// Gradients of leaves are summed on the current streams of the thread that runs the pass. If the stream that
// computes a gradient differs from the stream that reads it, the engine records an event after the
// computation, and the reading stream waits for the event before its first use: as input of a rule or in a
// sum, which the reading stream computes. When the pass ends, the caller's streams wait for all work that the
// pass has queued. Then all targets are ready, and the caller may overwrite the tensors that the rules have
// read. A pass on one stream records no event.

// Note [Sums of leaves]
// A leaf with several consumers receives several gradients. On a GPU the launch of a kernel costs more than
// most of these sums. Sums into leaves whose gradients are read only after the pass (`read_after_pass`) are
// therefore deferred and batched into few launches. The order of the additions is unchanged. Deferred terms
// hold at most kMaxPendingBytes bytes.

// Note [Deferred weight gradients]
// A stage of a pipeline sends the gradients of its inputs to another stage; the gradients of its parameters
// can wait (zero-bubble schedules, Qi et al., ICLR 2024). run() runs the nodes that lead to inputs, and
// computes the gradients along the edges that lead to inputs. For its other edges a node keeps the gradients
// of its outputs and what the rules of these edges saved. Ops whose rule is not deferrable (NodeTraits:
// checkpoints, functions of users, rules of all inputs) compute all gradients in run(), and keep those of the
// other edges. run_deferred() runs the edges that are left, and the nodes that lead to parameters alone. No
// edge is run twice. Required nodes run once: in run() if they lead to an input, else in run_deferred(); that
// is the same on every rank.

// A pass that defers some targets: `deferred` is not empty, and keep_graph is false. Callers call run() once,
// then run_deferred() once, and finish the recording only then. Errors as of the function run().
class DeferringPass {
 public:
  explicit DeferringPass(BackwardPass pass);
  ~DeferringPass();
  // Delivers the targets that are not deferred. Does not call begin.
  void run();
  // Calls begin, and delivers the deferred targets.
  void run_deferred();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns the gradient with the shape, dtype and device of its value: sums over broadcast dims, casts, copies
// to the device, and makes the result channels-last if the value is. A sparse gradient that fits is returned
// as is.
// Errors: ShapeError if the gradient has fewer dims than the value, or does not broadcast from it.
Tensor conform_gradient(Tensor gradient, const ValueInfo& value);

}  // namespace gradus::autograd
