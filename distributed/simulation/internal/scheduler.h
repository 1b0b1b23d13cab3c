// Scheduler: a deterministic, seeded scheduler that runs the threads of a simulation one at a time in virtual
// time. See
// Note [Cooperative scheduling] in scheduler.cc.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <queue>
#include <semaphore>
#include <utility>

#include "gradus/distributed/base/simulation_hooks.h"
#include "gradus/distributed/simulation/simulation.h"

namespace gradus::dist::internal {

class Scheduler final : public Simulation {
 public:
  // Calls `on_death(rank)` some virtual time after a rank was killed, to notify the other ranks. `on_death` must
  // not block.
  Scheduler(int world_size, const SimulationOptions& options, std::function<void(int rank)> on_death);
  ~Scheduler();

  // Runs body(rank) for each rank in a separate thread. Returns when these threads, and all threads that they
  // started, have ended.
  SimulationReport run(const std::function<void(int rank)>& body);

  TimePoint now() const override { return now_; }
  bool block(const std::function<bool()>& ready, TimePoint until, const char* what) override;
  void step(const char* what) override;
  bool drops(int from, int to) override;
  TimePoint arrival(int from, int to) override;
  std::thread start_thread(std::function<void()> body) override;
  void join(std::thread& thread) override;

 private:
  struct Thread;
  struct Event {
    TimePoint time;
    int thread, rank;
    const char* kind;
    std::array<char, 40> what;
  };

  uint64_t random();
  double uniform();
  uint64_t log_uniform(double limit);  // in [1, limit], log-uniformly distributed

  std::thread launch(int rank, std::function<void()> body);
  Thread* choose();
  void yield();
  bool can_run(const Thread& thread);
  bool is_dead(const Thread& thread) const;
  void enter(const char* kind, const char* what);
  void stop_if_dead();
  void wait_for(const std::function<bool()>& ready, TimePoint until, const char* what, bool must_finish);
  void deliver_due_events();
  void give_up();
  void record(const char* kind, const char* what);
  std::string describe(const Event& event) const;
  std::string waits() const;

  const SimulationOptions options_;
  const std::function<void(int)> on_death_;
  SimulationReport report_;

  // The members below are accessed only by the running thread.
  std::vector<std::unique_ptr<Thread>> threads_;
  TimePoint now_;
  uint64_t draws_ = 0;
  // Times at which a message arrives, so that the `ready` of a thread may become true.
  std::priority_queue<TimePoint, std::vector<TimePoint>, std::greater<>> timers_;
  // can_run is evaluating a thread's `ready`, in which hooks do not switch threads
  bool evaluating_ready_ = false;
  bool hung_ = false;

  double switch_chance_;  // probability of switching threads at a step
  int victim_ = -1;
  uint64_t steps_ = 0, victim_steps_ = 0, kill_at_ = 0;
  TimePoint death_report_time_ = TimePoint::max();
  uint64_t messages_ = 0, drop_at_message_ = 0;
  std::pair<int, int> dropped_link_{-1, -1};
  std::map<std::pair<int, int>, TimePoint> last_arrival_;

  std::deque<Event> events_;  // the last ones

  std::atomic<uint64_t> progress_{0};
  std::binary_semaphore finished_{0};
  static constinit thread_local Thread* self_;
};

}  // namespace gradus::dist::internal
