// Fork counter, by pthread_atfork.
#include "gradus/tensor/runtime/fork.h"

#include <pthread.h>

#include <atomic>

namespace gradus::internal {
namespace {

std::atomic<int> forks{0};
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });

thread_local int team_of = -1;  // fork_count() when this thread started a team; -1: no team

}  // namespace

int fork_count() { return forks.load(std::memory_order_relaxed); }
void record_openmp_team() { team_of = fork_count(); }
bool openmp_team_is_in_parent() { return team_of >= 0 && team_of != fork_count(); }

}  // namespace gradus::internal
