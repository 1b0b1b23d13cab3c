// Finds the rank that blocks a call from the statuses that ranks report, and makes the text of the error.
#pragma once

#include <string>
#include <vector>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/health/membership.h"

namespace gradus::dist {

// A rank without a sign of life for this long is taken to be stopped. Heartbeats come every half second.
inline constexpr Milliseconds kHeartbeatTimeout{2000};

// Returns "rank 3", or "ranks 1, 2".
std::string list_ranks(const std::vector<int>& ranks);

struct RanksAtFault {
  int rank = -1;          // the first one at fault
  std::string text = {};  // empty: no rank is at fault
};
// Returns the ranks that block `call`, the group's call that statuses[local] is in. `text` names the call in
// the message. `limit` is " within 5000 ms", or "" for a call that cannot end.
RanksAtFault find_ranks_at_fault(const std::vector<RankStatus>& statuses, int local, const CallId& call,
                                 const std::string& text, const std::string& limit);

// Returns the failure that all ranks get when the ranks at these indices of `statuses` wait for
// each other forever.
Failure deadlock_failure(const std::vector<RankStatus>& statuses, const std::vector<int>& ranks);

}  // namespace gradus::dist
