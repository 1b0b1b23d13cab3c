// Counts the generations of processes in a handler of pthread_atfork that runs in each child, and remembers
// in which generation a thread last started an OpenMP team.
#include "gradus/tensor/runtime/fork.h"

#include <pthread.h>

#include <atomic>

namespace gradus::internal {
namespace {

std::atomic<int> forks{0};
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

thread_local int team_generation = -1;  // fork_count() when this thread started a team; -1: no team

}  // namespace

int fork_count() { return forks.load(std::memory_order_relaxed); }
void record_openmp_team() { team_generation = fork_count(); }
bool openmp_team_is_in_parent() { return team_generation >= 0 && team_generation != fork_count(); }

}  // namespace gradus::internal
