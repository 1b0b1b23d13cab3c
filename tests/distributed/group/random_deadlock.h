// Random programs of collectives and messages in a simulation, in some of which ranks deadlock.
#pragma once

#include <cstdint>
#include <string>

namespace gradus::dist {

// Ranks make their calls in different orders, in several groups, fast or slow, on one thread or two. Ranks
// that wait for each other forever must get an error within 2 s of virtual time; without such ranks there
// must be no error.
struct DeadlockReport {
  std::string wrong;        // what was wrong; "" for nothing
  bool deadlocked = false;  // the program of this seed deadlocks
};
DeadlockReport try_deadlock(uint64_t seed);

}  // namespace gradus::dist
