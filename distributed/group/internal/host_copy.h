// Job::share among the ranks of a host: one copy of read-only memory, in a memfd. The first rank that
// requests the copy fills and seals the memfd; the others map it.
#pragma once

#include <string>

#include "gradus/distributed/group/world.h"

namespace gradus::dist::internal {

// Implements Job::share (tensor/runtime/job.h) for several ranks per host. A key in the store names the rank
// that fills or has the copy; ranks that pass the same key and `bytes` share one. A rank that cannot map that
// memory (another container, no memory for files) fills a private copy of its own. fill(p) writes all of the
// `bytes` bytes at p. Not collective; blocks while another rank fills. After the filling rank has released
// its memory or left, the next rank fills anew; mappings stay valid.
// Errors: ValueError for a key of more than 512 bytes; those of fill(); TimeoutError if filling takes longer
// than the job's timeout; the job's failure.
HostMemory share_on_host(World& world, const std::string& key, size_t bytes, const Job::Fill& fill);

}  // namespace gradus::dist::internal
