// A rank's status as text, which travels in heartbeats.
#pragma once

#include <string>
#include <string_view>

#include "gradus/distributed/base/membership.h"

namespace gradus::dist::internal {

// Returns "!7f ^3.0#12 ^5.0#2 3.0#12:0-3 ~5.0#2:0,2 ?:1-3\nin all_reduce #12 ...". If the rank is stuck, the
// text begins with the number RankStatus::stuck ("!") and the calls that the rank has come to ("^"). The
// waits follow: "~" marks a wait that does not hold the rank, "?" a wait for any of its ranks. What has no
// room is left out; then the text does not say that the rank is stuck.
std::string to_text(const RankStatus& status);
// Reads such a text into `status`. Skips what is malformed.
void read_text(std::string_view text, int world_size, RankStatus& status);
// Returns RankStatus::stuck of such a text; 0 if the rank is not stuck.
uint64_t read_stuck(std::string_view text);

}  // namespace gradus::dist::internal
