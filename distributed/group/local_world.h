// Ranks as threads of one process (backend "local"), each with a World. For run_ranks and simulate.
#pragma once

#include <functional>
#include <vector>

#include "gradus/distributed/group/run_ranks.h"
#include "gradus/distributed/group/world.h"

namespace gradus::dist::internal {

// Makes one World per rank, without message transport and default group. They share memory of this process.
// Errors: ValueError unless world_size >= 1 and 1 <= options.hosts <= world_size.
std::vector<Ref<World>> make_local_worlds(int world_size, const RunRanksOptions& options);

// Runs body() on the calling thread as the rank of `world`, in a Context of its own. Collective over the
// ranks, each on its own thread: first makes transport and default group. After body() the rank leaves the
// job. If body() throws, reports the exception as the job's failure and rethrows it.
void run_as_rank(const Ref<World>& world, const std::function<void()>& body);

}  // namespace gradus::dist::internal
