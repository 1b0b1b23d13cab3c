// One copy of read-only memory for all ranks of a host: a memfd that the first rank to ask fills and seals,
// and that the others map. For Job::share.
#pragma once

#include <string>

#include "gradus/distributed/group/world.h"

namespace gradus::dist::internal {

// As Job::share, for a job whose ranks share hosts. The store tells who fills or has it. A rank that cannot
// reach the other's memory (another container, no memory for files) gets a copy of its own.
// Errors: what fill() throws; when filling takes longer than the job's timeout, or the job fails meanwhile,
// those of waits.
HostMemory share_on_host(World& world, const std::string& key, size_t bytes, const Job::Fill& fill);

}  // namespace gradus::dist::internal
