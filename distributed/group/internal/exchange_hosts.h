// Exchanges the ranks' host ids through the store during init_process_group.
#pragma once

#include <string>
#include <vector>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/group/internal/rendezvous.h"
#include "gradus/distributed/health/membership.h"

namespace gradus::dist::internal {

// Per rank of the job: host_id() (transport/segment.h) and available_cores() (core_share.h).
struct Hosts {
  std::vector<std::string> ids, cores;
};

// Returns the hosts of all ranks. Collective over the job; blocks until all ranks have called it. `where`
// names the store in errors; `server`: the store's server if this rank runs it, to add refused clients to the
// error; else null. Without a membership (null), ranks that have left are not detected.
// Errors: TimeoutError and PeerError that name the ranks that did not arrive.
Hosts exchange_hosts(const JobPosition& position, Store& store, Membership* membership,
                     const Deadline& deadline, const std::string& where, const StoreServer* server = nullptr);

}  // namespace gradus::dist::internal
