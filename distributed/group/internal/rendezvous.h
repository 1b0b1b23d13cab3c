// Rendezvous: how the ranks of a job find the job's store.
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
// Ranks of different jobs must not meet. A launcher of Gradus hosts the store and passes its address to its
// own ranks. torchrun hosts a store of its own. There rank 0 opens the job's store at a port that the system
// picks, under a random name. Rank 0 passes port and name through torchrun's store, which only ranks of that
// torchrun know. Under a scheduler, the job's name tells its store from others.
// All other ranks know the store by a port alone. They use exactly that port or fail. If two processes join
// as one rank while ranks still join, or shortly after, nothing tells which job the other ranks belong to, so
// both jobs end.

// This rank's position in the job. -1: neither the options nor the environment give the number.
struct JobPosition {
  int rank = -1, size = -1;
  int local_rank = -1, local_size = -1;
};

// The job's store, as a rank finds it.
struct JobStore {
  StoreAddress address;
  std::string host;                     // of the store, as ranks on other hosts reach it
  std::shared_ptr<StoreServer> server;  // on rank 0, unless a launcher hosts the store
  std::string token_file;               // where the token is from; "": the token was given
  bool known_by_port_alone = false;
};

struct Rendezvous {
  // Finds the job's store. Rank 0 opens it, unless a launcher has done so.
  // Errors: ConnectionError for a taken port; TimeoutError that names the ranks that did not arrive.
  std::function<JobStore(const JobPosition&, const Deadline&)> find_store;
  bool hosted_by_launcher = false;
  std::string file = {};  // of another store; to be removed when all ranks have joined
};

// Chooses by the options and the environment, and sets `position`.
// Errors: ValueError.
Rendezvous make_rendezvous(const InitOptions& options, JobPosition& position);

}  // namespace gradus::dist::internal
