// Random programs of ranks on one host or several, in which one rank stalls: it lives, but makes no call. In
// any call and for any chain of waiting ranks, all errors must name that rank.
#pragma once

#include <cstdint>
#include <string>

namespace gradus::dist {

struct StallReport {
  std::string wrong;  // "" when all is well
  // Ranks of which each may be the one that stalls, for all that can be known: the errors must name these and
  // no others. Mostly it is one.
  int suspects = 0;
};

// Runs the stall that `seed` makes up, under a simulation.
StallReport try_stall(uint64_t seed);

}  // namespace gradus::dist
