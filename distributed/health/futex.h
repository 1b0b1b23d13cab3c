// Futex: lets ranks wait for each other, in memory that threads or processes share. A waiter spins briefly,
// then sleeps in a futex, in time slices. Between slices it checks whether the job has failed, since such news
// may not arrive through this memory.
#pragma once

#include <atomic>
#include <cstdint>

#include "gradus/distributed/base/deadline.h"
#include "gradus/distributed/base/simulation_hooks.h"
#include "gradus/distributed/health/membership.h"

namespace gradus::dist::internal {

// The limits of a wait: it ends when the job fails or the deadline passes.
struct WaitLimits {
  Membership* membership = nullptr;
  Deadline deadline;
};

enum class WaitResult { kReady, kFailed, kTimeout };

// All zeros is a valid state, so a Futex may lie in fresh shared memory. It holds no lock, so a rank that
// dies leaves nothing locked.
class Futex {
 public:
  struct Nothing {
    void operator()() const {}
  };
  // Makes all waiters look again. Call it after the change that they wait for.
  void notify();

  // Waits until ready() holds. ready() must be cheap and read with acquire order. Returns kReady if
  // ready() holds at the end, else kFailed if the job has failed, else kTimeout. Calls ready() `spins`
  // times before the first sleep; pass 0 if the awaited thread needs this core. Calls sleeps() once,
  // before the first sleep.
  template <class Ready, class Sleeps = Nothing>
  WaitResult wait(const WaitLimits& limits, Ready&& ready, const char* what, int spins = spin_limit(),
                  Sleeps&& sleeps = {}) {
    if (Simulation* simulation = Simulation::current()) {
      sleeps();
      const auto stop = [&] { return ready() || limits.membership->failed(); };
      const bool checks = limits.membership->checks_for_deadlocks();
      const auto limit = [&] {
        return checks ? limits.deadline.within(kSimulatedCheckPeriod).time() : limits.deadline.time();
      };
      while (!simulation->block(stop, limit(), what) && !limits.deadline.passed())
        limits.membership->check_for_deadlock();
    } else {
      for (; spins > 0; --spins) {
        if (ready()) return WaitResult::kReady;
        pause(spins);
      }
      for (bool first = true;; first = false) {
        const uint32_t seen = count_.load(std::memory_order_seq_cst);
        if (ready()) return WaitResult::kReady;
        if (limits.membership->failed() || limits.deadline.passed()) break;
        if (first) sleeps();
        sleep(seen, limits.deadline);
        limits.membership->check_for_deadlock();
      }
    }
    if (ready()) return WaitResult::kReady;
    return limits.membership->failed() ? WaitResult::kFailed : WaitResult::kTimeout;
  }

  // Returns how often a waiter spins before it sleeps. If this machine has fewer cores than ranks
  // (set_ranks_on_host), these are a few spins that hand the core over; else they are many.
  static int spin_limit();
  static void set_ranks_on_host(int ranks);

 private:
  static constexpr Milliseconds kSimulatedCheckPeriod{250};

  static void pause(int spins_left);
  // Sleeps until notified, for at most 50 ms and not beyond the deadline.
  void sleep(uint32_t seen, const Deadline& deadline);

  std::atomic<uint32_t> count_{0};
  std::atomic<uint32_t> sleepers_{0};
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(Futex) == 8);

}  // namespace gradus::dist::internal
