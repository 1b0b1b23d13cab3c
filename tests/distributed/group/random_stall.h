// Ranks on one host or several, of which one stalls: it lives, and does not come. Whatever the others are in
// by then, and however they wait for each other, all errors must name it.
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
