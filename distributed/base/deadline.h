// Time limits. Time is the steady clock's, or a simulation's (gradus/distributed/simulation/simulation.h).
#pragma once

#include <algorithm>
#include <chrono>

namespace gradus::dist {

using Milliseconds = std::chrono::milliseconds;
using TimePoint = std::chrono::steady_clock::time_point;

// The time that deadlines are measured by: virtual on a thread that a simulation runs.
TimePoint now();

class Deadline {
 public:
  static Deadline after(Milliseconds timeout) {
    const TimePoint start = now();
    // Far beyond any job; keeps sums from overflowing.
    return Deadline(start + std::min(timeout, Milliseconds(std::chrono::hours(24 * 365))), timeout);
  }
  // Not later than this from now on; for messages it is the same.
  Deadline within(Milliseconds limit) const {
    Deadline sooner = *this;
    sooner.time_ = std::min(time_, after(limit).time_);
    return sooner;
  }
  TimePoint time() const { return time_; }
  Milliseconds timeout() const { return timeout_; }  // as given, for messages
  bool passed() const { return now() >= time_; }
  // What is left, at least 0.
  Milliseconds left() const {
    return std::max(Milliseconds(0), std::chrono::ceil<Milliseconds>(time_ - now()));
  }

 private:
  Deadline(TimePoint time, Milliseconds timeout) : time_(time), timeout_(timeout) {}
  TimePoint time_;
  Milliseconds timeout_;
};

}  // namespace gradus::dist
