// How ranks run a differentiable collective together. They tell each other whether they want a gradient, in
// which of their open recordings, and what their tensors look like. Also: how a rank's failing backward
// reaches the others.
#pragma once

#include <exception>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gradus/autograd/graph/node.h"
#include "gradus/distributed/group/collective_argument.h"
#include "gradus/distributed/group/group_state.h"

namespace gradus::dist::internal {

// Returns the same group for use on any thread. The default group becomes that of this thread's rank.
inline Group resolved(const Group& group) { return Group(Ref<GroupState>(&group.state())); }

// Returns the recordings open on this thread, oldest first.
// Errors: StateError for more than 64 recordings, the number of bits in a mask.
std::vector<autograd::RecordingState*> open_recording_states(std::string_view op);

struct Forward {
  Op op;
  ReduceOp reduce = ReduceOp::kSum;
  int root = -1;                   // index in the group
  std::span<const Tensor> inputs;  // row-major; the first one describes the call
  // Moves the data. `specs` has the specs of each member's inputs, if the op's input is a list.
  std::function<void(MatchedCall&, const std::vector<std::vector<TensorSpec>>& specs)> move;
};

// What the members have agreed on.
struct Agreement {
  CallRecord record;  // this rank's
  // This rank's open recordings that the op must join: those that follow an input on some rank.
  std::vector<autograd::RecordingState*> recordings;
};

// Note [Agreement]
// A collective's gradient is itself a collective. Every member must take part in it, even if its own input
// needs no gradient, and must do so in the backward that corresponds to the others'. Ranks that run one
// program have opened the same recordings. So the i-th open recording here corresponds to the i-th one there.
// Which recordings follow an input travels with the call's record, at no extra cost.
//
// Runs the call. Collective over the group.
// Errors: MismatchError when a member wants gradients and another has opened more or fewer recordings.
Agreement run_forward(const Group& group, const Forward& forward);
// Returns whether a gradient has arrived on any member, in the backward of the call with `record`. Collective
// over the group.
bool any_rank_has_gradient(const Group& group, CallRecord record, bool local);

// Reports to the job that this rank's backward threw, or what else `what` says, since other ranks wait for
// gradients from here. Does nothing if the exception comes from another rank's failure. For Node::skipped.
void report_backward_failure(const World* world, const std::exception_ptr& error,
                             const char* what = "failed in its backward") noexcept;

// While it lives, reports of this thread say that the rank failed in `action`. The innermost counts.
class ReportedAction {
 public:
  explicit ReportedAction(std::string action);
  ~ReportedAction();
  ReportedAction(const ReportedAction&) = delete;
  ReportedAction& operator=(const ReportedAction&) = delete;

 private:
  friend void report_backward_failure(const World*, const std::exception_ptr&, const char*) noexcept;
  std::string what_;  // "failed in 1W0"
  const ReportedAction* outer_;
};

}  // namespace gradus::dist::internal
