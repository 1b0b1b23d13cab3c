// Finds the ranks that block a call, from all ranks' RankStatus (wait-for graph), and makes the error's text.
#pragma once

#include <string>
#include <vector>

#include "gradus/distributed/base/error.h"
#include "gradus/distributed/health/membership.h"

namespace gradus::dist {

// A rank without a heartbeat for this long counts as stopped. Ranks send a heartbeat every half second.
inline constexpr Milliseconds kHeartbeatTimeout{2000};

// Returns "rank 3", or "ranks 1, 2".
std::string list_ranks(const std::vector<int>& ranks);

struct RanksAtFault {
  int rank = -1;          // the first rank at fault (rank in the job); -1: none
  std::string text = {};  // "rank 2 did not come to all_reduce #3 within 5000 ms: ..."; "": none
};
// Pure functions of the statuses, which may be of any subset of the ranks and inconsistent.
// Returns the ranks that block `call`, the call that the rank of statuses[local] is in (undefined: none).
// `text` names the call in the result's text. `limit` is " within 5000 ms", or "": the call can never end.
RanksAtFault find_ranks_at_fault(const std::vector<RankStatus>& statuses, int local, const CallId& call,
                                 const std::string& text, const std::string& limit);

// Returns the failure of a deadlock of the ranks at these indices of `statuses` (at least one).
Failure deadlock_failure(const std::vector<RankStatus>& statuses, const std::vector<int>& ranks);

}  // namespace gradus::dist
