// Exchanges the ranks' hosts while a job begins.
#pragma once

#include <string>
#include <vector>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/group/internal/rendezvous.h"
#include "gradus/distributed/health/membership.h"

namespace gradus::dist::internal {

// Each rank's host, and the cores that it may use there.
struct Hosts {
  std::vector<std::string> ids, cores;
};

// Returns the hosts of all ranks. Collective over the job. `where` names the store in errors; `server` is this rank's.
// Without a membership, ranks that have left are not noticed.
// Errors: TimeoutError and PeerError that name the ranks that did not arrive.
Hosts exchange_hosts(const JobPosition& position, Store& store, Membership* membership,
                     const Deadline& deadline, const std::string& where, const StoreServer* server = nullptr);

}  // namespace gradus::dist::internal
