// Ranks as threads of one process, each with a World of its own.
#pragma once

#include <functional>
#include <vector>

#include "gradus/distributed/group/run_ranks.h"
#include "gradus/distributed/group/world.h"

namespace gradus::dist::internal {

// Makes one World per rank. They reach each other through memory alone.
std::vector<Ref<World>> make_local_worlds(int world_size, const RunRanksOptions& options);

// Runs body() as the rank that `world` belongs to, in a Context of its own. Collective over the job, since it
// first makes the default group. After body() the rank leaves in order. If body() throws, the rank reports
// the exception to the others and rethrows it.
void run_as_rank(const Ref<World>& world, const std::function<void()>& body);

}  // namespace gradus::dist::internal
