// Group: a process group (MPI communicator): an ordered set of the job's ranks, over which collectives run.
#pragma once

#include <string>
#include <vector>

#include "gradus/distributed/base/deadline.h"
#include "gradus/tensor/base/ref.h"

namespace gradus::dist {

namespace internal {
class GroupState;
}

// A handle with a reference count; copies share the group. A default-constructed Group stands for the default
// group, dist::world(), of the thread that uses it. Before init_process_group this is a group of one rank, in
// which collectives do not communicate. The functions may be called on any thread of the rank.
class Group {
 public:
  Group();
  explicit Group(Ref<internal::GroupState> state);
  ~Group();
  Group(const Group&);
  Group& operator=(const Group&);

  bool is_default() const { return !state_; }  // stands for dist::world()
  bool is_member() const;  // false for the result of new_group on ranks that are no members
  int rank() const;        // this rank's index in the group; -1: no member
  int size() const;
  const std::vector<int>& ranks() const;  // the members' ranks in the job, in the group's order
  const std::string& name() const;        // for errors
  std::string backend() const;            // "local" (ranks are threads), "gloo", or "none" for a group of one
  Milliseconds timeout() const;           // default timeout of calls in this group

  // Splits this group as MPI_Comm_split; collective over this group. Members that pass the same color form a
  // group, ordered by key, then by rank in this group. Negative color: is_member() of the result is false.
  // Without a job the result is this group.
  // Errors: ValueError if this rank is no member.
  Group split(int color, int key = 0) const;
  // Returns a group of the same members. Calls in it are independent of calls in this group. Collective.
  Group duplicate() const;

  internal::GroupState& state() const;  // resolves the default group

 private:
  Ref<internal::GroupState> state_;
};

}  // namespace gradus::dist
