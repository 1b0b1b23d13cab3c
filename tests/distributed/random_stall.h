// Ranks on one host or several, of which one stalls: it lives, and does not come. Whatever the others are in by
// then, and however they wait for each other, all errors must name it.
#pragma once

#include <cstdint>
#include <string>

namespace gradus::dist {

// Runs the stall that `seed` makes up, under a simulation. Returns what was wrong, or "".
std::string try_stall(uint64_t seed);

}  // namespace gradus::dist
