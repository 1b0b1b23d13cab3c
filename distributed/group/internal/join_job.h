// The implementation of init_process_group and destroy_process_group: how a process joins and leaves a job.
#pragma once

#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/world.h"

namespace gradus::dist::internal {

// Joins a job, and makes its default group. Collective over the job; blocks until all ranks have joined. Does
// not make the World the process's (World::exchange_process_world does).
// Errors: ValueError for contradicting options; FileError for a file of the rendezvous or the token that
// others may access; ConnectionError if the store is out of reach; TimeoutError naming the missing ranks.
Ref<World> join_job(const InitOptions& options);

// Leaves the job in order. The rank that hosts the store blocks until the other ranks have left too, for at
// most the job's timeout (500 ms after the job's failure).
void leave_job(World& world);

// Registers handlers (on_exit, std::set_terminate) by which the process's World leaves the job at exit status
// 0, and reports the uncaught exception or the exit status otherwise. Repeated calls are harmless.
void install_exit_hooks();

}  // namespace gradus::dist::internal
