// Futex: a condition on which ranks wait for each other, in memory shared by threads or processes (Linux
// futex(2)). A waiter spins briefly, then sleeps in time slices. Between slices it checks whether the job
// has failed, which may be reported through the store alone.
#pragma once

#include <atomic>
#include <cstdint>

#include "gradus/distributed/base/deadline.h"
#include "gradus/distributed/base/simulation_hooks.h"
#include "gradus/distributed/health/membership.h"

namespace gradus::dist::internal {

// A wait ends when the job of `membership` fails or the deadline passes.
struct WaitLimits {
  Membership* membership = nullptr;  // not owned; must not be null
  Deadline deadline;
};

enum class WaitResult { kReady, kFailed, kTimeout };

// Zero-initialized shared memory is a valid Futex. It has no lock, so a rank that dies leaves nothing locked.
class Futex {
 public:
  struct DoNothing {
    void operator()() const {}
  };
  // Makes all waiters evaluate ready() again. Call it after the change that they wait for.
  void notify();

  // Blocks until ready() is true. ready() must be cheap and load with acquire order. Returns kReady if
  // ready() is true at the end, else kFailed if the job has failed, else kTimeout. Calls ready() `spins`
  // times before the first sleep; 0 if the awaited thread needs this core. Calls on_sleep() once, before the
  // first sleep. `what` names the wait in a simulation's trace.
  template <class Ready, class OnSleep = DoNothing>
  WaitResult wait(const WaitLimits& limits, Ready&& ready, const char* what, int spins = spin_limit(),
                  OnSleep&& on_sleep = {}) {
    if (Simulation* simulation = Simulation::current()) {
      on_sleep();
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
        const uint32_t count = count_.load(std::memory_order_seq_cst);
        if (ready()) return WaitResult::kReady;
        if (limits.membership->failed() || limits.deadline.passed()) break;
        if (first) on_sleep();
        sleep(count, limits.deadline);
        limits.membership->check_for_deadlock();
      }
    }
    if (ready()) return WaitResult::kReady;
    return limits.membership->failed() ? WaitResult::kFailed : WaitResult::kTimeout;
  }

  // Returns how often a waiter spins before it sleeps: rarely, and with sched_yield, if this host has fewer
  // cores than ranks (set_ranks_on_host, process-wide).
  static int spin_limit();
  static void set_ranks_on_host(int ranks);

 private:
  static constexpr Milliseconds kSimulatedCheckPeriod{250};

  static void pause(int spins_left);
  // Sleeps until notified, unless count_ differs from `count`, for at most 50 ms or until the deadline.
  void sleep(uint32_t count, const Deadline& deadline);

  std::atomic<uint32_t> count_{0};  // of notify() calls; the word of futex(2)
  std::atomic<uint32_t> sleepers_{0};
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(Futex) == 8);

}  // namespace gradus::dist::internal
