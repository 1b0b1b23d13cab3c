// Hooks for deterministic simulation testing (gradus/distributed/simulation/simulation.h), which replaces
// clock, thread scheduling and message delivery. Code that blocks, communicates or starts threads calls
// Simulation::current() first; it is null outside of tests, at the cost of one thread-local load.
#pragma once

#include <functional>
#include <thread>

#include "gradus/distributed/base/deadline.h"

namespace gradus::dist::internal {

// Thrown at a scheduling point of the rank that the simulation kills. No std::exception, so that handlers of
// std::exception do not catch it.
struct RankKilled {};

// Called on the simulation's own threads. In message hooks, `from` and `to` are ranks in the job.
class Simulation {
 public:
  // Returns the simulation that the calling thread belongs to, or null.
  static Simulation* current() { return current_; }

  virtual TimePoint now() const = 0;
  // Blocks the calling thread, and runs others, until ready() is true or virtual time reaches `until`.
  // Returns the last ready(). `what` names the wait in the trace of events.
  virtual bool block(const std::function<bool()>& ready, TimePoint until, const char* what) = 0;
  // A scheduling point: may run other threads first, and throws RankKilled if this rank is killed here. The
  // caller must not hold a lock.
  virtual void step(const char* what) = 0;
  // Returns whether the message that the caller is about to send is lost.
  virtual bool drops_message(int from, int to) = 0;
  // Returns the virtual time at which a message sent now becomes visible to its receiver.
  virtual TimePoint arrival_time(int from, int to) = 0;
  // Starts a thread that belongs to the calling thread's rank.
  virtual std::thread start_thread(std::function<void()> body) = 0;
  // Blocks until a thread that start_thread has started ends.
  virtual void join(std::thread& thread) = 0;

 protected:
  ~Simulation() = default;
  static constinit thread_local Simulation* current_;
};

// Start and join a std::thread, which has a snapshot of the caller's Context (thread-local state). In a
// simulation the thread belongs to the simulation. `body` must not throw.
std::thread start_thread(std::function<void()> body);
void join_thread(std::thread& thread);

}  // namespace gradus::dist::internal
