// Deadline: an absolute time limit, by std::chrono::steady_clock or by the virtual clock of a simulation.
#pragma once

#include <algorithm>
#include <chrono>

namespace gradus::dist {

using Milliseconds = std::chrono::milliseconds;
using TimePoint = std::chrono::steady_clock::time_point;

// Returns the current time: virtual time on a thread of a simulation (simulation/simulation.h).
TimePoint now();

// The end of a wait, and the timeout from which the end was computed. Immutable.
class Deadline {
 public:
  // Returns the deadline `timeout` from now. It has passed at once if timeout <= 0.
  static Deadline after(Milliseconds timeout) {
    const TimePoint start = now();
    // A year outlasts any job, and the sum cannot overflow.
    return Deadline(start + std::min(timeout, Milliseconds(std::chrono::hours(24 * 365))), timeout);
  }
  // Returns the sooner of this deadline and `limit` from now. Its timeout() is that of this deadline.
  Deadline within(Milliseconds limit) const {
    Deadline sooner = *this;
    sooner.time_ = std::min(time_, after(limit).time_);
    return sooner;
  }
  TimePoint time() const { return time_; }
  Milliseconds timeout() const { return timeout_; }  // after()'s argument, for error messages
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
