// simulate: runs the ranks of an in-process job as threads under Scheduler, which is deterministic for a seed
// and lets one thread run at a time, in virtual time. Hooks: gradus/distributed/base/simulation_hooks.h.
//
// Note [Cooperative scheduling]
// Each simulated thread is a real thread that is blocked on its semaphore unless it is the running thread.
// The running thread calls hooks, which may switch to another runnable thread. A thread is runnable if it is
// not waiting, if its `ready` returns true, or if its deadline has passed. If no thread is runnable, virtual
// time advances to the next event that may make one runnable. If there is no such event before `give_up`, the
// run hangs: the report is marked and all threads are unwound.
//
// Killing a rank: the next block or step of each of its threads throws RankKilled, except during unwinding.
// join never throws.
#include "gradus/distributed/simulation/simulation.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <queue>
#include <semaphore>
#include <utility>

#include "gradus/distributed/base/simulation_hooks.h"
#include "gradus/distributed/group/local_world.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/random.h"

namespace gradus::dist {
namespace internal {
namespace {

constexpr TimePoint kStart{std::chrono::seconds(1000)};
constexpr size_t kMaxEvents = 256;
constexpr uint64_t kMaxSteps = 3'000'000;  // a run with more steps counts as a livelock
// Real time without an event: a thread blocks outside of hooks.
constexpr std::chrono::seconds kMaxRealWait{120};

// See Note [Cooperative scheduling].
class Scheduler final : public Simulation {
 public:
  // Calls `on_death(rank)` some virtual time after a rank was killed, to notify others. It must not block.
  Scheduler(int world_size, const SimulationOptions& options, std::function<void(int)> on_death)
      : options_(options), on_death_(std::move(on_death)), now_(kStart) {
    report_.seed = options.seed;
    report_.errors.resize(world_size);
    constexpr double kSwitchChances[] = {1, 0.3, 0.05};
    switch_chance_ = kSwitchChances[random() % 3];
    if (uniform() < options.kill) {
      victim_ = int(random() % world_size);
      kill_at_ = log_uniform(512);
    }
    if (uniform() < options.drop) drop_at_message_ = log_uniform(64);
  }

  // Runs body(rank) on a thread per rank. Returns when these threads, and all that they started, have ended.
  SimulationReport run(const std::function<void(int)>& body) {
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < int(report_.errors.size()); ++rank)
      ranks.push_back(launch(rank, [this, rank, &body] {
        try {
          body(rank);
        } catch (...) {
          report_.errors[rank] = std::current_exception();
        }
      }));
    choose()->turn.release();
    for (uint64_t seen = progress_; !finished_.try_acquire_for(kMaxRealWait); seen = progress_)
      if (seen == progress_) {
        std::fprintf(stderr, "simulation with seed %llu: stuck outside of any hook\n%s",
                     (unsigned long long)options_.seed, waits().c_str());
        std::abort();
      }
    for (std::thread& rank : ranks) rank.join();

    std::vector<std::string> trace;
    for (const Event& event : events_) trace.push_back(describe(event));
    report_.trace.insert(report_.trace.begin(), trace.begin(), trace.end());
    report_.hung = hung_;
    return std::move(report_);
  }

  TimePoint now() const override { return now_; }
  bool block(const std::function<bool()>& ready, TimePoint until, const char* what) override {
    if (evaluating_ready_) return ready();
    enter("waits", what);
    wait_for(ready, until, what, std::uncaught_exceptions() > 0);
    stop_if_dead();
    return ready();
  }

  void step(const char* what) override {
    if (evaluating_ready_) return;
    enter("passes", what);
    if (uniform() < switch_chance_) yield();
    stop_if_dead();
  }

  bool drops_message(int from, int to) override {
    if (++messages_ == drop_at_message_) {
      dropped_link_ = {from, to};
      report_.dropped = true;
      record("loses", "a message and all that follow it");
    }
    return dropped_link_ == std::pair(from, to);
  }

  TimePoint arrival_time(int from, int to) override {
    // The fourth power makes most delays short.
    const double fraction = std::pow(uniform(), 4);
    const auto delay = std::chrono::duration_cast<TimePoint::duration>(options_.max_delay * fraction);
    TimePoint& last = last_arrival_[{from, to}];
    last = std::max(last, now_ + delay);
    timers_.push(last);
    return last;
  }

  std::thread start_thread(std::function<void()> body) override {
    return launch(self_->rank, std::move(body));
  }

  void join(std::thread& thread) override {
    // Searches backward for the latest thread with this id, since ids are reused after a join or detach.
    const auto it = std::find_if(threads_.rbegin(), threads_.rend(),
                                 [&](const auto& t) { return t->id == thread.get_id(); });
    if (it == threads_.rend()) throw InternalError("a simulated thread joins one that is not simulated");
    const Thread& target = **it;
    record("joins", "");
    wait_for([&] { return target.done; }, TimePoint::max(), "the end of a thread", true);
    thread.join();
  }

 private:
  struct Thread {
    int number = 0, rank = -1;
    uint64_t weight = 1;  // relative probability of being chosen
    std::binary_semaphore turn{0};
    std::thread::id id;
    bool done = false;
    // Arguments of the current wait_for:
    const std::function<bool()>* ready = nullptr;
    TimePoint until;
    const char* what = "";
    bool must_finish = false;  // the wait continues even if the rank is dead
  };
  struct Event {
    TimePoint time;
    int thread, rank;
    const char* kind;
    std::array<char, 40> what;
  };

  uint64_t random() {
    const auto bits = philox(options_.seed, /*stream=*/0, draws_++);
    return uint64_t(bits[0]) << 32 | bits[1];
  }

  double uniform() { return double(random() >> 11) * 0x1p-53; }

  // Returns a number in [1, limit], log-uniformly distributed.
  uint64_t log_uniform(double limit) { return uint64_t(std::exp2(uniform() * std::log2(limit))); }

  std::thread launch(int rank, std::function<void()> body) {
    Thread& self = *threads_.emplace_back(std::make_unique<Thread>());
    self.number = int(threads_.size()) - 1;
    self.rank = rank;
    self.weight = uint64_t(1) << random() % 4;
    std::thread thread([this, &self, body = std::move(body)]() mutable {
      current_ = this;
      self_ = &self;
      self.turn.acquire();
      try {
        if (!is_dead(self)) body();
      } catch (const RankKilled&) {
      }
      body = nullptr;  // destroys captured objects within the simulation
      record("ends", "");
      self.done = true;
      current_ = nullptr;
      if (std::ranges::all_of(threads_, [](const auto& t) { return t->done; }))
        finished_.release();
      else
        choose()->turn.release();
    });
    self.id = thread.get_id();
    return thread;
  }

  // Chooses the thread that runs next. Advances time if no thread is runnable.
  Thread* choose() {
    for (;;) {
      deliver_due_events();
      std::vector<Thread*> runnable;
      uint64_t weights = 0;
      for (const auto& thread : threads_)
        if (!thread->done && can_run(*thread)) {
          runnable.push_back(thread.get());
          weights += thread->weight;
        }
      if (!runnable.empty()) {
        uint64_t chosen = runnable.size() == 1 ? 0 : random() % weights;
        for (Thread* thread : runnable) {
          if (chosen < thread->weight) return thread;
          chosen -= thread->weight;
        }
      }

      TimePoint next = death_report_time_;
      if (!timers_.empty()) next = std::min(next, timers_.top());
      for (const auto& thread : threads_)
        if (!thread->done) next = std::min(next, thread->until);
      if (next < kStart + options_.give_up)
        now_ = std::max(now_, next);
      else
        give_up();
    }
  }

  void yield() {
    Thread* const next = choose();
    if (next == self_) return;
    next->turn.release();
    self_->turn.acquire();
  }

  bool can_run(const Thread& thread) {
    if (!thread.ready || thread.until <= now_) return true;
    if (is_dead(thread) && !thread.must_finish) return true;
    evaluating_ready_ = true;
    bool ready = true;  // if `ready` throws, the thread runs, calls it again and gets the exception
    try {
      ready = (*thread.ready)();
    } catch (...) {
    }
    evaluating_ready_ = false;
    return ready;
  }

  bool is_dead(const Thread& thread) const { return hung_ || thread.rank == report_.killed; }

  // Start of block and step: advances time slightly, and kills the victim at its kill_at_-th such call.
  void enter(const char* kind, const char* what) {
    record(kind, what);
    now_ += std::chrono::microseconds(random() % 16);
    if (++steps_ > kMaxSteps || now_ > kStart + options_.give_up) {
      if (!hung_) give_up();
    }
    self_->what = what;
    if (self_->rank == victim_ && report_.killed < 0 && ++victim_steps_ >= kill_at_ &&
        std::uncaught_exceptions() == 0) {
      record("is killed at", what);
      report_.killed = victim_;
      death_report_time_ = now_ + std::chrono::milliseconds(1 + random() % 600);
    }
    stop_if_dead();
  }

  void stop_if_dead() {
    if (is_dead(*self_) && std::uncaught_exceptions() == 0) throw RankKilled();
  }

  // Lets other threads run until `ready` returns true, `until` has passed, or the rank is dead and the wait
  // is not must_finish. A thread that is ready at once may still let others run first.
  void wait_for(const std::function<bool()>& ready, TimePoint until, const char* what, bool must_finish) {
    if (ready() && uniform() >= switch_chance_) return;
    Thread& self = *self_;
    self.ready = &ready;
    self.until = until;
    self.what = what;
    self.must_finish = must_finish;
    yield();
    self.ready = nullptr;
  }

  void deliver_due_events() {
    while (!timers_.empty() && timers_.top() <= now_) timers_.pop();
    if (death_report_time_ > now_) return;
    death_report_time_ = TimePoint::max();
    on_death_(report_.killed);
  }

  // Ends a deadlocked run, or one that exceeds its limits. Records what each thread waits for, and makes
  // block and step throw, so that all threads unwind.
  void give_up() {
    if (hung_) {
      std::fprintf(stderr, "simulation with seed %llu: threads that were to end do not\n%s",
                   (unsigned long long)options_.seed, waits().c_str());
      std::abort();
    }
    hung_ = true;
    for (const auto& thread : threads_)
      if (!thread->done)
        report_.trace.push_back(concat("hung: rank ", thread->rank, ", thread ", thread->number, ' ',
                                       thread->ready ? "waits for " : "runs ", thread->what));
  }

  void record(const char* kind, const char* what) {
    progress_.fetch_add(1, std::memory_order_relaxed);
    if (hung_) return;  // the trace ends with the events before the hang
    Event event{now_, self_->number, self_->rank, kind, {}};
    std::strncpy(event.what.data(), what, event.what.size() - 1);
    const auto mix = [&](uint64_t value) {
      report_.trace_hash = (report_.trace_hash ^ value) * 0x9E3779B97F4A7C15u + 1;
    };
    mix(uint64_t(now_.time_since_epoch().count()));
    mix(uint64_t(event.thread));
    for (const char* c = event.what.data(); *c; ++c) mix(uint64_t(*c));
    events_.push_back(event);
    if (events_.size() > kMaxEvents) events_.pop_front();
  }

  std::string describe(const Event& event) const {
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(event.time - kStart).count();
    return concat(us, " us: rank ", event.rank, ", thread ", event.thread, ' ', event.kind, ' ',
                  event.what.data());
  }

  std::string waits() const {
    std::string text;
    for (const auto& thread : threads_)
      text += concat("rank ", thread->rank, ", thread ", thread->number,
                     thread->done    ? " has ended, last: "
                     : thread->ready ? " waits for "
                                     : " runs since ",
                     thread->what, '\n');
    return text;
  }

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
  int victim_ = -1;       // rank to be killed at its kill_at_-th block or step; -1: none
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

constinit thread_local Scheduler::Thread* Scheduler::self_ = nullptr;

}  // namespace
}  // namespace internal

SimulationReport simulate(int world_size, const SimulationOptions& options,
                          const std::function<void()>& body) {
  auto worlds = internal::make_local_worlds(
      world_size,
      {.timeout = options.timeout, .messages_only = options.messages_only, .hosts = options.hosts});
  std::vector<std::shared_ptr<Membership>> memberships;
  for (const auto& world : worlds) memberships.push_back(world->membership);
  // Reports a killed rank, as a broken connection to the store does. Ignored if it has exited normally.
  const auto report_death = [&](int rank) {
    memberships[rank]->report(
        {Failure::Kind::kDied, rank, concat("rank ", rank, " was killed by the simulation")});
  };
  internal::Scheduler scheduler(world_size, options, report_death);
  return scheduler.run([&](int rank) {
    // Moved, so that the world is destroyed in the rank's thread, during the simulation.
    const Ref<internal::World> world = std::move(worlds[rank]);
    internal::run_as_rank(world, body);  // rethrows what body() throws, also RankKilled
  });
}

}  // namespace gradus::dist
