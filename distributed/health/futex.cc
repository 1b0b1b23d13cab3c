// Futex by futex(2): count_ is the futex word. notify() increments count_, so that a waiter that read
// count_ before its last check of ready() does not sleep. It wakes sleepers only if there are any.
#include "gradus/distributed/health/futex.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

#include "gradus/tensor/runtime/parallel.h"

namespace gradus::dist::internal {
namespace {

constexpr Milliseconds kSlice{50};  // maximal sleep between checks whether the job has failed
// About 100 us of spinning, the cost of waking a sleeper. Every 16th and each of the last 8 spins yields the
// core, which the awaited thread may need.
constexpr int kSpins = 2000;
constexpr int kSpinsPerYield = 16, kLastYields = 8;

std::atomic<int> ranks_on_host{1};

// Not FUTEX_PRIVATE: the waiters may be in other processes.
void futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

}  // namespace

// No wakeup is lost: either notify() reads the incremented sleepers_, or the kernel reads the new count_ and
// does not let the waiter sleep.
void Futex::notify() {
  count_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) futex(count_, FUTEX_WAKE, INT_MAX, nullptr);
}

void Futex::sleep(uint32_t count, const Deadline& deadline) {
  const int64_t ms = std::clamp<int64_t>(deadline.remaining().count(), 1, kSlice.count());
  const timespec limit{.tv_sec = 0, .tv_nsec = ms * 1'000'000};
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  futex(count_, FUTEX_WAIT, count, &limit);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

void Futex::pause(int spins_left) {
  if (spins_left % kSpinsPerYield == 0 || spins_left <= kLastYields) {
    sched_yield();
    return;
  }
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

int Futex::spin_limit() {
  return ranks_on_host.load(std::memory_order_relaxed) <= usable_cores() ? kSpins : kLastYields;
}

void Futex::set_ranks_on_host(int ranks) { ranks_on_host.store(ranks, std::memory_order_relaxed); }

}  // namespace gradus::dist::internal
