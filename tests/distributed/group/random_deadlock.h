// Ranks that make their calls in different orders, in groups of their own, fast or slow, on one thread or
// two: those that wait for each other for ever must hear so at once, and all others must never.
#pragma once

#include <cstdint>
#include <string>

namespace gradus::dist {

struct DeadlockReport {
  std::string wrong;        // "" when all is well
  bool deadlocked = false;  // some ranks could not go on
};

// Runs the program that `seed` makes up, under a simulation.
DeadlockReport try_deadlock(uint64_t seed);

}  // namespace gradus::dist
