// How ranks go through a differentiable collective together: whether any of them wants a gradient, in
// which of its open recordings, and what the tensors look like. And how a rank's failing backward
// reaches the others.
#pragma once

#include <exception>
#include <functional>
#include <span>
#include <vector>

#include "gradus/autograd/graph/node.h"
#include "gradus/distributed/group/group_state.h"

namespace gradus::dist::internal {

// The same group for any thread: the default group is that of this thread's rank.
inline Group resolved(const Group& group) { return Group(Ref<GroupState>(&group.state())); }

// The recordings open on this thread, oldest first.
// Errors: StateError for more than 64, the bits of a mask.
std::vector<autograd::RecordingState*> unfinished_recordings(std::string_view op);

// A tensor without its elements.
struct Form {
  DType dtype = DType::kF32;
  Shape shape;

  Form() = default;
  explicit Form(const Tensor& x) : dtype(x.dtype()), shape(x.shape()) {}
  explicit Form(const CallRecord& record) : dtype(record.dtype), shape(std::span(record.dims, record.ndim)) {}
  Tensor make(Device device) const { return empty(shape, {.dtype = dtype, .device = device}); }
  bool operator==(const Form&) const = default;
};

struct Forward {
  Op op;
  ReduceOp reduce = ReduceOp::kSum;
  int root = -1;                   // index in the group
  std::span<const Tensor> inputs;  // row-major; the first one describes the call
  bool announce = false;           // tells the others the inputs' forms
  // Moves the data. `forms` are what each member announced.
  std::function<void(Turn&, const std::vector<std::vector<Form>>& forms)> move;
};

// What the members have settled.
struct Agreement {
  CallRecord record;  // this rank's
  // Open recordings of this rank that the op must join: those that follow an input on some rank.
  std::vector<autograd::RecordingState*> recordings;
};

// Collective over the group: runs the call. Note [Agreement]
// A collective's gradient is a collective: every member must take part, also one whose own input needs no
// gradient, and in the backward that corresponds to the others'. Ranks that run one program have opened the
// same recordings, so the i-th open one here corresponds to the i-th there. What each follows travels with
// the call's record, at no cost.
// Errors: MismatchError when a member wants gradients and another has opened more or fewer recordings.
Agreement run_forward(const Group& group, const Forward& forward);
// Collective over the group, in the backward of the call with `record`: whether a gradient has
// arrived on any member.
bool any_gradient(const Group& group, CallRecord record, bool mine);

// Tells the job that this rank's backward threw, unless that is what another rank's failure made of it:
// others wait for gradients from here. For Node::skipped.
void report_backward_failure(const World* world, const std::exception_ptr& error) noexcept;

}  // namespace gradus::dist::internal
