// HostsBackend: collectives of several hosts, at least one of which has several ranks. exchange, all_reduce,
// broadcast and reduce (except of 16-bit floats) have two levels: ranks of one host use shared memory, and
// the first rank of each host, its leader, sends messages to other leaders. The others are messages of all
// members.
#pragma once

#include "gradus/distributed/transport/backend.h"

namespace gradus::dist::internal {

struct HostsSetup {
  std::vector<int> members;              // ranks in the job
  std::vector<int> host;                 // per member: its host; hosts are numbered by their first member
  int index = 0;                         // this rank's position in `members`
  std::unique_ptr<Backend> intra_host;   // the members of this host, in the group's order
  std::unique_ptr<Backend> inter_host;   // the leaders, in the order of hosts; null on other ranks
  std::unique_ptr<Backend> all_members;  // all members, by messages: for the other collectives
};
std::unique_ptr<Backend> make_hosts_backend(HostsSetup setup);

}  // namespace gradus::dist::internal
