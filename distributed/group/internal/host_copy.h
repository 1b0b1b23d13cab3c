// One copy of read-only memory for all ranks of a host. It is a memfd. The first rank that asks fills and
// seals it; the others map it. For Job::share.
#pragma once

#include <string>

#include "gradus/distributed/group/world.h"

namespace gradus::dist::internal {

// Does Job::share for a job with several ranks per host. The store says which rank fills the copy or has it.
// A rank that cannot reach that memory (another container, no memory for files) gets a copy of its own.
// Errors: what fill() throws; the errors of waits if filling takes longer than the job's timeout or the
// job fails meanwhile.
HostMemory share_on_host(World& world, const std::string& key, size_t bytes, const Job::Fill& fill);

}  // namespace gradus::dist::internal
