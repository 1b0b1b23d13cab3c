// Rendezvous: finds the job's store and this rank's number from InitOptions and environment variables of the
// launcher or scheduler.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gradus/distributed/base/deadline.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/store/store_server.h"
#include "gradus/distributed/store/tcp_store.h"

namespace gradus::dist::internal {

// Note [Whose store it is]
// Ranks of different jobs must not use the same store. A launcher of Gradus hosts the store and passes its
// address to its own ranks. With torchrun, file:// or InitOptions::store, rank 0 opens the job's store at any
// free port and publishes the port in that other store, with a random job id or token. A scheduler's job id
// distinguishes stores. All other ranks know the store by a port alone, and use exactly that port or fail. If
// two processes join as the same rank while ranks still join, or shortly after, nothing tells to which job
// the others belong: both jobs fail.

// This rank's position in the job. -1: neither the options nor the environment have the number.
struct JobPosition {
  int rank = -1, size = -1;
  int local_rank = -1, local_size = -1;
};

struct JobStore {
  StoreAddress address;
  std::string host;                     // the store's host name or address for ranks on other hosts
  std::shared_ptr<StoreServer> server;  // on rank 0, unless a launcher hosts the store; else null
  std::string token_file;               // the file that the token was read from; "": the token was passed
  bool known_by_port_alone = false;     // Note [Whose store it is]
};

struct Rendezvous {
  // Returns the job's store. Rank 0 opens it, unless a launcher has done so. May block until the deadline.
  // Errors: ConnectionError if the port is in use; TimeoutError that names the ranks that did not arrive.
  std::function<JobStore(const JobPosition&, const Deadline&)> find_store;
  bool hosted_by_launcher = false;
  std::string file = {};  // the file of file://, to be removed when all ranks have joined; "": none
};

// Chooses the kind of rendezvous by the options and the environment, and sets `position`.
// Errors: ValueError for missing or contradictory numbers.
Rendezvous make_rendezvous(const InitOptions& options, JobPosition& position);

}  // namespace gradus::dist::internal
