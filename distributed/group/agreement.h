// Forward and backward of differentiable collectives (functional.h). Members exchange for which of their open
// recordings (gradient tapes) they need a gradient, and the dtypes and shapes of their tensors. Also reports
// a failed backward to the other ranks.
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

// Returns a handle of the group for any thread: a default handle becomes that of this thread's rank.
inline Group resolved(const Group& group) { return Group(Ref<GroupState>(&group.state())); }

// Returns the recordings open on this thread, oldest first.
// Errors: StateError for more than 64 recordings, the number of bits in a mask.
std::vector<autograd::RecordingState*> open_recording_states(std::string_view op);

// A differentiable collective's forward, for run_forward.
struct Forward {
  Op op;
  ReduceOp reduce = ReduceOp::kSum;
  Device device = kCPU;            // of the result of a rank without inputs
  int root = -1;                   // index in the group
  std::span<const Tensor> inputs;  // row-major; the record has dtype and shape of the first one
  // Moves the data. specs[i][k]: dtype and shape of member i's k-th input; specs[i] empty without has_list.
  std::function<void(MatchedCall&, const std::vector<std::vector<TensorSpec>>& specs)> move;
};

struct Agreement {
  CallRecord record;  // of this rank, for any_rank_has_gradient
  // This rank's open recordings that the op must join: those that follow an input on some rank.
  std::vector<autograd::RecordingState*> recordings;
};

// Note [Agreement]
// A collective's gradient is itself a collective. Every member must call it, even if its own input needs no
// gradient, in the backward that corresponds to the other members'. Ranks that run one program have opened
// the same recordings, so the i-th open recordings of all ranks correspond. Members exchange a bit mask of
// the recordings that follow an input; a bit set on any member makes all members record the call.
//
// Runs the forward. Collective over the group; blocks until the data has moved.
// Errors: MismatchError if a member needs gradients and another has opened more or fewer recordings, and for
// a list of inputs of another length than the group or, in a reduction, of other shapes than a member's.
Agreement run_forward(const Group& group, const Forward& forward);
// In the backward of the call with `record`: returns whether `local` is true on any member, that is, whether
// any member has a gradient of its result. Collective over the group.
bool any_rank_has_gradient(const Group& group, CallRecord record, bool local);

// Reports to the job "rank 1 <what>: <error>", since other ranks wait for its gradients. Does nothing without
// an error or a job (null), once the job has failed, or for a DistributedError, which all ranks have.
void report_backward_failure(const World* world, const std::exception_ptr& error,
                             const char* what = "failed in its backward") noexcept;

// During its lifetime, report_backward_failure on this thread reports "failed in <action>" instead of `what`.
// The innermost ReportedAction of the thread counts.
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
