// How a process becomes a rank of a job, and ceases to be one.
#pragma once

#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/world.h"

namespace gradus::dist::internal {

// Collective over the job.
// Errors: those of init_process_group.
Ref<World> join_job(const InitOptions& options);

// Leaves in order. The rank that hosts the store stays until the others have left as well.
void leave_job(World& world);

// From now on the process's end is known to the others: in order (exit status 0), or with what ended it, an
// exception that nobody caught or another exit status.
void install_exit_hooks();

}  // namespace gradus::dist::internal
