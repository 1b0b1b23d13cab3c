// How a process becomes a rank of a job, and how it leaves.
#pragma once

#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/world.h"

namespace gradus::dist::internal {

// Joins a job. Collective over the job.
// Errors: those of init_process_group.
Ref<World> join_job(const InitOptions& options);

// Leaves in order. The rank that hosts the store stays until the others have left too.
void leave_job(World& world);

// From now on other ranks learn how this process ends: in order (exit status 0), or with the uncaught
// exception or the exit status that ended it.
void install_exit_hooks();

}  // namespace gradus::dist::internal
