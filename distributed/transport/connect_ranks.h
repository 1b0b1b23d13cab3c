// connect_ranks: TCP connections between ranks of different hosts. Each rank listens on a free port and publishes the
// port in the job's store, with a secret for each peer. Of two ranks the higher one connects, and both sides prove by
// their secrets that they are the ranks of the store. Other clients of the port are ignored.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gradus/distributed/base/file_descriptor.h"
#include "gradus/distributed/base/store.h"
#include "gradus/distributed/health/futex.h"

namespace gradus::dist::internal {

struct ConnectOptions {
  int rank = 0;
  std::vector<int> peers;        // ranks in the job; each of them has this rank among its peers
  std::shared_ptr<Store> store;  // its waits end when the job fails
  std::string address;           // of this host, as others reach it; "": loopback
};

// Returns a non-blocking socket to each peer, by rank. Collective over this rank and its peers. `watch` has
// the deadline, and the membership that reports the job's failure.
// Errors: ConnectionError if this host cannot listen at the address; PeerError or TimeoutError naming the
// peer that cannot be reached or does not connect; the job's failure.
std::map<int, FileDescriptor> connect_ranks(const ConnectOptions& options, const WaitLimits& watch);

}  // namespace gradus::dist::internal
