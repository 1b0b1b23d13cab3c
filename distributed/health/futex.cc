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

// How often a sleeping waiter looks whether the job has failed.
constexpr Milliseconds kSlice{50};
// About 100 us of spinning, which is what waking a sleeper costs. A spinning waiter yields its core now and
// then, and in each of the last spins. The awaited thread may have no other core.
constexpr int kSpins = 2000;
constexpr int kSpinsPerYield = 16, kLastYields = 8;

std::atomic<int> ranks_on_host{1};

// Not FUTEX_PRIVATE: the waiters may be in other processes.
void futex(std::atomic<uint32_t>& word, int operation, uint32_t value, const timespec* timeout) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

}  // namespace

// No wakeup is lost: either notify sees the sleeper, or the sleeper's futex sees the new count and
// does not sleep.
void Futex::notify() {
  count_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) futex(count_, FUTEX_WAKE, INT_MAX, nullptr);
}

void Futex::sleep(uint32_t seen, const Deadline& deadline) {
  const int64_t ms = std::clamp<int64_t>(deadline.remaining().count(), 1, kSlice.count());
  const timespec limit{.tv_sec = 0, .tv_nsec = ms * 1'000'000};
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  futex(count_, FUTEX_WAIT, seen, &limit);
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
