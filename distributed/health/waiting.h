// How a wait for other ranks fails. Timeouts and ranks that leave early become errors here, which name the ranks.
#pragma once

#include <string_view>
#include <vector>

#include "gradus/distributed/health/futex.h"

namespace gradus::dist::internal {

// Throws for a wait that ended with kFailed or kTimeout. `missing` are the ranks in the job that the wait was
// for. On a timeout it queries the statuses of all ranks, and reports a failure that names the ranks at fault ("rank 2
// did not come to all_reduce #12 within 5000 ms: no sign of life for 5300 ms (stopped?)"). It throws the
// failure that counts.
[[noreturn]] void throw_wait(const char* op, WaitResult outcome, const WaitLimits& limits,
                             const std::vector<int>& missing);

// check_left is for waits for `rank` when nothing has arrived: if the rank has left the job, it reports this
// and throws. It calls `still_missing` after it has seen that the rank has left, since messages that the rank
// sent before count.
[[noreturn]] void throw_left(const char* op, const WaitLimits& limits, int rank);

template <class StillMissing>
void check_left(const char* op, const WaitLimits& limits, int rank, StillMissing&& still_missing) {
  if (limits.membership->has_left(rank) && still_missing()) throw_left(op, limits, rank);
}

}  // namespace gradus::dist::internal
