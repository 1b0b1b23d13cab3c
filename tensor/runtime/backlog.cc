// Backlog: counters per thread and per process; a host thread that must wait polls them every 100 us.
#include "gradus/tensor/runtime/backlog.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "gradus/tensor/runtime/internal/cgroup.h"

namespace gradus::internal {
namespace {

thread_local int64_t pending_bytes = 0;  // recorded for the next task
thread_local bool may_wait = true;       // false on the worker threads of streams

}  // namespace

int64_t physical_memory() {
  static const int64_t bytes =
      std::min(int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE), cgroup_memory());
  return bytes;
}

void Backlog::add_to_next_task(int64_t bytes) { pending_bytes += bytes; }
int64_t Backlog::take_recorded_bytes() { return std::exchange(pending_bytes, 0); }
void Backlog::exempt_this_thread() { may_wait = false; }

void Backlog::wait_until_below_limit() {
  using Clock = std::chrono::steady_clock;
  if (!may_wait || bytes_ <= limit) return;
  int64_t ended = ended_;
  if (ended == ended_at_timeout_) return;  // no task has finished since a thread gave up: do not wait again
  Clock::time_point last_progress = Clock::now();
  while (bytes_ > limit) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    if (const int64_t now = ended_; now != ended) {
      ended = now;
      last_progress = Clock::now();
    } else if (Clock::now() - last_progress > stall_timeout.load()) {
      ended_at_timeout_ = ended;
      return;
    }
  }
}

Backlog& backlog() {
  static auto* b = [] {
    // A child of fork() starts without tasks.
    pthread_atfork(nullptr, nullptr, [] { new (&backlog()) Backlog; });
    return new Backlog;
  }();
  return *b;
}

}  // namespace gradus::internal
