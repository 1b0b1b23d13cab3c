// Random programs of ranks under a simulation, some of which wait for each other.
#pragma once

#include <cstdint>
#include <string>

namespace gradus::dist {

// Ranks make their calls in different orders, in groups of their own, fast or slow, on one thread or two. Ranks
// that wait for each other forever must get an error at once. All other ranks must never get one.
struct DeadlockReport {
  std::string wrong;        // "" when all is well
  bool deadlocked = false;  // some ranks could not go on
};
DeadlockReport try_deadlock(uint64_t seed);

}  // namespace gradus::dist
