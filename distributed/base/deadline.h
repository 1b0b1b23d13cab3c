// Time limits, by the steady clock or by a simulation's clock (gradus/distributed/simulation/simulation.h).
#pragma once

#include <algorithm>
#include <chrono>

namespace gradus::dist {

using Milliseconds = std::chrono::milliseconds;
using TimePoint = std::chrono::steady_clock::time_point;

// Returns the time that deadlines are measured by. On a thread that a simulation runs, it is virtual.
TimePoint now();

class Deadline {
 public:
  static Deadline after(Milliseconds timeout) {
    const TimePoint start = now();
    // A year outlasts any job, and the sum cannot overflow.
    return Deadline(start + std::min(timeout, Milliseconds(std::chrono::hours(24 * 365))), timeout);
  }
  // Returns this deadline, or `limit` from now if that is sooner. timeout() stays the same, for messages.
  Deadline within(Milliseconds limit) const {
    Deadline sooner = *this;
    sooner.time_ = std::min(time_, after(limit).time_);
    return sooner;
  }
  TimePoint time() const { return time_; }
  Milliseconds timeout() const { return timeout_; }  // as given, for messages
  bool passed() const { return now() >= time_; }
  // Returns the remaining time, at least 0.
  Milliseconds remaining() const {
    return std::max(Milliseconds(0), std::chrono::ceil<Milliseconds>(time_ - now()));
  }

 private:
  Deadline(TimePoint time, Milliseconds timeout) : time_(time), timeout_(timeout) {}
  TimePoint time_;
  Milliseconds timeout_;
};

}  // namespace gradus::dist
