// A rank's status as it travels.
#pragma once

#include <string>
#include <string_view>

#include "gradus/distributed/base/membership.h"

namespace gradus::dist::internal {

// "!7f ^3.0#12 ^5.0#2 3.0#12:0-3 ~5.0#2:0,2 ?:1-3\nin all_reduce #12 ...": the number of a rank that is
// stuck and the calls that it has come to, then its waits. Before each of these are a mark for one that
// does not hold the rank, and one for ranks of which any is enough. What has no room is left out; then the
// rank is not stuck.
std::string to_text(const RankStatus& status);
// Takes what is sound.
void read_text(std::string_view text, int world_size, RankStatus& status);
// The number of a rank that is stuck, else 0.
uint64_t read_stuck(std::string_view text);

}  // namespace gradus::dist::internal
