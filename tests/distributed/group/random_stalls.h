// Random programs of ranks under a simulation that do not go on: one rank stalls, or ranks wait for each other.
#pragma once

#include <cstdint>
#include <string>

namespace gradus::dist {

// One rank of a program lives, but makes no call. In any call and for any chain of waiting ranks, all errors must
// name that rank.
struct StallReport {
  std::string wrong;  // "" when all is well
  // Ranks of which each may be the one that stalls, for all that can be known: the errors must name these and
  // no others. Mostly it is one.
  int suspects = 0;
};
StallReport try_stall(uint64_t seed);

// Ranks make their calls in different orders, in groups of their own, fast or slow, on one thread or two. Ranks
// that wait for each other forever must get an error at once. All other ranks must never get one.
struct DeadlockReport {
  std::string wrong;        // "" when all is well
  bool deadlocked = false;  // some ranks could not go on
};
DeadlockReport try_deadlock(uint64_t seed);

}  // namespace gradus::dist
