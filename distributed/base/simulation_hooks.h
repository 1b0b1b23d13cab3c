// The hooks through which a simulation drives ranks. Code that blocks or communicates
// calls them. Outside of a simulation they cost one thread-local load. What runs a
// simulation is gradus/distributed/simulation/simulation.h.
#pragma once

#include <functional>
#include <thread>

#include "gradus/distributed/base/deadline.h"

namespace gradus::dist::internal {

// Thrown at a scheduling point of the rank that the simulation kills. No std::exception: nothing
// should catch it.
struct RankKilled {};

class Simulation {
 public:
  // The simulation that runs the calling thread, or null.
  static Simulation* current() { return current_; }

  virtual TimePoint now() const = 0;
  // Lets others run until `ready` holds or `until` has passed; returns whether it holds. `what`
  // is for the trace.
  virtual bool block(const std::function<bool()>& ready, TimePoint until, const char* what) = 0;
  // A point at which another thread may run, or this rank may be killed (throws RankKilled). To be called
  // with no lock held.
  virtual void step(const char* what) = 0;
  // Whether the message about to be sent is lost.
  virtual bool drops(int from, int to) = 0;
  // When a message sent now becomes visible to its receiver.
  virtual TimePoint arrival(int from, int to) = 0;
  // Starts a thread that belongs to the calling thread's rank.
  virtual std::thread start_thread(std::function<void()> body) = 0;
  // Waits for such a thread.
  virtual void join(std::thread& thread) = 0;

 protected:
  ~Simulation() = default;
  static constinit thread_local Simulation* current_;
};

// std::thread that a simulation schedules when the caller is in one. Installs a snapshot of
// the caller's Context.
std::thread start_thread(std::function<void()> body);
void join_thread(std::thread& thread);

}  // namespace gradus::dist::internal
