// Group: a handle of a GroupState; split and duplicate choose members for internal::make_group.
#include "gradus/distributed/group/group.h"

#include <algorithm>
#include <tuple>

#include "gradus/distributed/group/group_state.h"

namespace gradus::dist {

using internal::GroupState;
using internal::MatchedCall;

namespace {

// Returns the default group of a process or thread without a job. Never destroyed.
GroupState& single_rank_group() {
  static const auto& state =
      *new Ref<GroupState>(make_ref<GroupState>(GroupState::Setup{.name = "world", .members = {0}}));
  return *state;
}

}  // namespace

Group::Group() = default;
Group::Group(Ref<GroupState> state) : state_(std::move(state)) {}
Group::~Group() = default;
Group::Group(const Group&) = default;
Group& Group::operator=(const Group&) = default;

GroupState& Group::state() const {
  if (state_) return *state_;
  const internal::World* world = internal::World::current();
  return world ? *world->default_group : single_rank_group();
}

bool Group::is_member() const { return state().is_member(); }
int Group::rank() const { return state().index(); }
int Group::size() const { return state().size(); }
const std::vector<int>& Group::ranks() const { return state().members(); }
const std::string& Group::name() const { return state().name(); }
std::string Group::backend() const { return state().backend_name(); }
Milliseconds Group::timeout() const { return state().timeout(); }

Group Group::split(int color, int key) const {
  const std::vector<int>& ranks = state().members();
  const auto choose = [&](const MatchedCall& matched) {
    // matched.sizes[i] is {color, key} of member i; no members for a negative color.
    std::vector<std::tuple<int64_t, size_t>> order;  // key, then rank in this group
    for (size_t i = 0; i < ranks.size(); ++i)
      if (color >= 0 && matched.sizes[i].at(0) == color) order.emplace_back(matched.sizes[i].at(1), i);
    std::ranges::sort(order);
    std::vector<int> members;
    for (const auto& [_, i] : order) members.push_back(ranks[i]);
    return members;
  };
  return internal::make_group(*this, {.op = internal::Op::kSplit, .values = {color, key}}, choose);
}

Group internal::duplicate(const Group& group, Op op, std::string_view owner) {
  const std::string_view base = op == Op::kDuplicate ? group.name() : name_of(op);
  return make_group(group, {.op = op, .base = base, .owner = owner},
                    [&](const MatchedCall&) { return group.state().members(); });
}

Group Group::duplicate() const { return internal::duplicate(*this, internal::Op::kDuplicate); }

}  // namespace gradus::dist
