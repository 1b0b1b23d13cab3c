// Group: some of the job's ranks, which communicate with each other.
#pragma once

#include <string>
#include <vector>

#include "gradus/distributed/base/deadline.h"
#include "gradus/tensor/base/ref.h"

namespace gradus::dist {

namespace internal {
class GroupState;
}

// A small handle; copies share the group. A default-constructed Group stands for the default group,
// dist::world(), wherever a Group is an argument. Without init_process_group this is a group of one, in which
// every collective is a no-op.
class Group {
 public:
  Group();
  explicit Group(Ref<internal::GroupState> state);
  ~Group();
  Group(const Group&);
  Group& operator=(const Group&);

  bool is_default() const { return !state_; }  // stands for dist::world()
  bool is_member() const;                      // false for what new_group gives to other ranks
  int rank() const;                            // index in the group; -1 when no member
  int size() const;
  const std::vector<int>& ranks() const;  // the members' ranks in the job, in the group's order
  const std::string& name() const;        // for messages
  std::string backend() const;            // "local", "gloo", or "none" for a group of one
  Milliseconds timeout() const;           // of a call, unless the call says otherwise

  // Splits this group; collective over it. Members that give the same color form a group, ordered by key,
  // then by rank in this group. A member with a negative color joins no group: its result has no member.
  Group split(int color, int key = 0) const;
  // Returns a group of the same members. Calls in it are independent of calls in this group. Collective.
  Group duplicate() const;

  internal::GroupState& state() const;  // resolves the default group

 private:
  Ref<internal::GroupState> state_;
};

}  // namespace gradus::dist
