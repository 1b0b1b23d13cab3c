// HostsBackend: collectives of several hosts with several ranks each. Ranks of a host meet in shared memory;
// the first of each host, its leader, talks to the other leaders.
#pragma once

#include "gradus/distributed/transport/backend.h"

namespace gradus::dist::internal {

struct HostsSetup {
  std::vector<int> members;         // ranks in the job
  std::vector<int> host;            // per member: its host's number, counted by first member
  int index = 0;                    // this rank's place among the members
  std::unique_ptr<Backend> within;  // the members of this host, in the group's order
  std::unique_ptr<Backend> across;  // the leaders, in the order of hosts; null on other ranks
  std::unique_ptr<Backend> flat;    // all members, by messages: for what has no better way
};
std::unique_ptr<Backend> make_hosts_backend(HostsSetup setup);

}  // namespace gradus::dist::internal
