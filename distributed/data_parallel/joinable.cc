// Joinable and the service of a join(): in each step all ranks reduce who has joined, on the group of the
// first object; then joined ranks call shadow_step of all objects.
#include "gradus/distributed/data_parallel/joinable.h"

#include <algorithm>
#include <limits>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/group/agreement.h"
#include "gradus/distributed/group/collectives.h"
#include "gradus/distributed/group/group_state.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus::dist {

void Joinable::notify() {
  if (joined_ && joined_->objects[0] == this && !joined_->has_shadowed) joined_->exchange(false);
}

void join(std::initializer_list<Joinable*> objects, const std::function<void()>& body,
          const JoinOptions& options) {
  join(std::vector<std::shared_ptr<AllReduceCallback>>(), body, options, {}, objects);
}

namespace internal {

JoinedObjects::JoinedObjects(const std::vector<Joinable*>& all, const JoinOptions& join_options)
    : objects(all), options(join_options) {
  if (std::ranges::count(objects, nullptr) > 0) throw ValueError("join", "a Joinable is null");
  if (objects.empty()) return;
  group = resolved(objects[0]->join_group());
  group.state().check_member("join");
  for (Joinable* object : objects) {
    if (object->joined_) throw StateError("join", "a Joinable is within join() already");
    if (std::ranges::count(objects, object) > 1) throw ValueError("join", "a Joinable is given twice");
    if (resolved(object->join_group()).ranks() != group.ranks())
      throw ValueError("join", "the Joinables' groups have different ranks");
  }
  for (Joinable* object : objects) object->joined_ = this;
}

JoinedObjects::~JoinedObjects() {
  for (Joinable* object : objects)
    if (object && object->joined_ == this) object->joined_ = nullptr;
}

bool JoinedObjects::exchange(bool has_joined) {
  if (objects.empty() || group.size() == 1) return has_joined;
  const auto throw_early_end = [](int rank) {
    throw PeerError("join", rank, "rank ", rank,
                    " has no more data, and others have: throw_on_early_termination");
  };
  if (ended_by) throw_early_end(*ended_by);  // nobody answers any more
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  const Tensor state = tensor<int64_t>({has_joined, has_joined ? group.rank() : kNone});
  all_reduce(state, {.op = ReduceOp::kMin, .group = group});
  // Whether all have joined, and the first rank that has.
  const std::vector<int64_t> least = state.to_vector<int64_t>();
  if (least[0] || least[1] == kNone || !options.throw_on_early_termination) return least[0];
  ended_by = group.ranks()[least[1]];
  throw_early_end(*ended_by);
  return false;
}

void JoinedObjects::serve_until_all_joined() {
  while (!exchange(true)) {
    has_shadowed = true;
    try {
      for (Joinable* object : objects) object->shadow_step();
    } catch (...) {
      report_backward_failure(group.state().world(), std::current_exception(), "failed in shadow_step");
      throw;
    }
  }
}

void JoinedObjects::after_join() {
  for (Joinable* object : objects) object->joined_ = nullptr;  // steps of after_join() notify no rank
  for (Joinable* object : objects) object->after_join(!has_shadowed);
}

}  // namespace internal
}  // namespace gradus::dist
