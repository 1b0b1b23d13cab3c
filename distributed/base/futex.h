// Futex: how ranks wait for each other, in memory that threads or processes share. A waiter spins briefly,
// then sleeps in a futex, in slices, so that it notices a failure of the job that nobody could tell it
// through this memory.
#pragma once

#include <atomic>
#include <cstdint>

#include "gradus/distributed/base/deadline.h"
#include "gradus/distributed/base/membership.h"
#include "gradus/distributed/base/simulation_hooks.h"

namespace gradus::dist::internal {

// Limits of a wait: the job goes on, and the deadline.
struct Watch {
  Membership* membership = nullptr;
  Deadline deadline;
};

enum class Wait { kReady, kFailed, kTimeout };

// All zeros is a valid state: it may lie in fresh shared memory. Holds no lock, so a rank that dies
// leaves nothing behind.
class Futex {
 public:
  // Makes those who wait look again. Call after the change that they wait for.
  void notify();

  // Waits until ready() holds; ready() must be cheap, and read what it reads with acquire order. Says kReady
  // whenever it holds, else kFailed when the job has failed, else kTimeout. Before it sleeps it looks `spins`
  // times: 0 where the one to wait for needs this core. It calls `sleeps` before the first time.
  template <class Ready>
  Wait wait(const Watch& watch, Ready&& ready, const char* what, int spins = spin_limit()) {
    return wait(watch, std::forward<Ready>(ready), what, spins, [] {});
  }
  template <class Ready, class Sleeps>
  Wait wait(const Watch& watch, Ready&& ready, const char* what, int spins, Sleeps&& sleeps) {
    if (Simulation* simulation = Simulation::current()) {
      sleeps();
      const auto stop = [&] { return ready() || watch.membership->failed(); };
      const bool looks = watch.membership->looks_for_deadlocks();
      const auto limit = [&] {
        return looks ? watch.deadline.within(kSimulatedLook).time() : watch.deadline.time();
      };
      while (!simulation->block(stop, limit(), what) && !watch.deadline.passed())
        watch.membership->look_for_deadlock();
    } else {
      for (; spins > 0; --spins) {
        if (ready()) return Wait::kReady;
        pause(spins);
      }
      for (bool first = true;; first = false) {
        const uint32_t seen = count_.load(std::memory_order_seq_cst);
        if (ready()) return Wait::kReady;
        if (watch.membership->failed() || watch.deadline.passed()) break;
        if (first) sleeps();
        sleep(seen, watch.deadline);
        watch.membership->look_for_deadlock();
      }
    }
    if (ready()) return Wait::kReady;
    return watch.membership->failed() ? Wait::kFailed : Wait::kTimeout;
  }

  // Iterations before a waiter sleeps: a few that hand the core over, when this machine has fewer cores than
  // ranks (set_ranks_on_host), else many.
  static int spin_limit();
  static void set_ranks_on_host(int ranks);

 private:
  static constexpr Milliseconds kSimulatedLook{250};

  static void pause(int spins_left);
  // Sleeps until notified, but not long (50 ms), nor beyond the deadline.
  void sleep(uint32_t seen, const Deadline& deadline);

  std::atomic<uint32_t> count_{0};
  std::atomic<uint32_t> sleepers_{0};
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(Futex) == 8);

}  // namespace gradus::dist::internal
