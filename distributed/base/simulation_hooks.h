// The hooks through which a simulation drives ranks. Code that blocks or communicates calls them. Outside of
// a simulation they cost one thread-local load. gradus/distributed/simulation/simulation.h runs a simulation.
#pragma once

#include <functional>
#include <thread>

#include "gradus/distributed/base/deadline.h"

namespace gradus::dist::internal {

// Thrown at a scheduling point of the rank that the simulation kills. It is no std::exception, since nothing
// should catch it.
struct RankKilled {};

class Simulation {
 public:
  // Returns the simulation that runs the calling thread, or null.
  static Simulation* current() { return current_; }

  virtual TimePoint now() const = 0;
  // Lets other threads run until `ready` holds or `until` has passed. Returns whether `ready` holds. `what`
  // is for the trace.
  virtual bool block(const std::function<bool()>& ready, TimePoint until, const char* what) = 0;
  // Marks a point at which another thread may run, or this rank may be killed (then it throws RankKilled).
  // Call it with no lock held.
  virtual void step(const char* what) = 0;
  // Returns whether the message about to be sent is lost.
  virtual bool drops_message(int from, int to) = 0;
  // Returns when a message sent now becomes visible to its receiver.
  virtual TimePoint arrival_time(int from, int to) = 0;
  // Starts a thread that belongs to the calling thread's rank.
  virtual std::thread start_thread(std::function<void()> body) = 0;
  // Waits for a thread that start_thread has started.
  virtual void join(std::thread& thread) = 0;

 protected:
  ~Simulation() = default;
  static constinit thread_local Simulation* current_;
};

// Starts a std::thread with a snapshot of the caller's Context. If the caller is in a simulation, the
// simulation schedules the thread.
std::thread start_thread(std::function<void()> body);
void join_thread(std::thread& thread);

}  // namespace gradus::dist::internal
