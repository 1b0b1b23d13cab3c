// run_ranks: ranks as threads of this process, with `local` groups. For tests, and for one
// machine without processes.
#pragma once

#include <functional>

#include "gradus/distributed/base/deadline.h"
#include "gradus/distributed/group/group.h"

namespace gradus::dist {

struct RunRanksOptions {
  Milliseconds timeout{600'000};
  bool messages_only = false;  // collectives through messages, as between hosts, instead of shared memory
  int hosts = 1;               // as if the ranks were spread evenly over this many hosts
};

// Runs body() on `world_size` threads, each a rank of one job. Returns when all have ended.
// Errors: what the rank that failed first threw (the other ranks then fail because of it).
void run_ranks(int world_size, const std::function<void()>& body, const RunRanksOptions& options = {});

}  // namespace gradus::dist
