// run_ranks: runs a function as the ranks of a job that are threads of this process (backend "local").
#pragma once

#include <functional>

#include "gradus/distributed/base/deadline.h"
#include "gradus/distributed/group/group.h"

namespace gradus::dist {

struct RunRanksOptions {
  Milliseconds timeout{600'000};  // default timeout of each call
  bool nccl = true;               // false: collectives between GPUs go through host memory
  bool messages_only = false;     // true: collectives use messages, as between hosts; false: shared memory
  int hosts = 1;                  // simulated hosts over which the ranks are spread evenly
};

// Runs body() on `world_size` threads, each a rank of one job, and blocks until all have ended. Each thread
// has a Context (thread-local state) of its own: a copy of the caller's without recordings, with an equal
// share of the CPU threads, and a random generator that draws the same numbers on all ranks.
// Errors: the exception of the rank that failed first (which ends the job for the others); ValueError for a
// world_size below 1, or hosts outside of [1, world_size].
void run_ranks(int world_size, const std::function<void()>& body, const RunRanksOptions& options = {});

}  // namespace gradus::dist
