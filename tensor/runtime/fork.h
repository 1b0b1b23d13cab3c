// fork(): threads and connections stay with the parent. A child may go on to compute, on one thread where the
// parent's OpenMP was in use.
#pragma once

#include <thread>
#include <utility>

namespace gradus::internal {

// How many forks lie between the program's start and this process. What was made at another count
// is the parent's.
int fork_count();

// This thread starts a team of OpenMP's threads, which will not be there in a child.
void use_team();
// Whether its team is the parent's: OpenMP would wait for it for ever.
bool has_lost_team();

// Leaves a thread of the parent's alone: here is nothing to join, nor to detach.
inline void forget_thread(std::thread& thread) { new std::thread(std::move(thread)); }

}  // namespace gradus::internal
