// Ranks that are threads of one process, each with a World of its own.
#pragma once

#include <functional>
#include <vector>

#include "gradus/distributed/group/run_ranks.h"
#include "gradus/distributed/group/world.h"

namespace gradus::dist::internal {

// One per rank; they know each other through memory alone.
std::vector<Ref<World>> make_local_worlds(int world_size, const RunRanksOptions& options);

// Runs body() as the rank that `world` belongs to, in a Context of its own. Collective over the job: it
// first makes the default group. Then the rank leaves in order, or tells the others what it threw,
// which it throws on.
void run_as_rank(const Ref<World>& world, const std::function<void()>& body);

}  // namespace gradus::dist::internal
