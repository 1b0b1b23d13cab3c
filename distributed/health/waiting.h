// The errors of waits for other ranks: timeouts, and ranks that have left. Both become the job's failure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "gradus/distributed/health/futex.h"

namespace gradus::dist::internal {

// Throws for a wait for the ranks `missing` that ended with `result`. kFailed: throws the job's failure.
// kTimeout: queries the statuses of all ranks, reports a failure that names the ranks at fault ("rank 2 did
// not come to all_reduce #12 within 5000 ms: no sign of life for 5300 ms (stopped?)"), and throws it, or the
// failure that another rank reported first. May block for about 3 s. `op` is the waiting function's name.
// `missing` may be empty: the ranks are unknown.
[[noreturn]] void throw_wait(const char* op, WaitResult result, const WaitLimits& limits,
                             const std::vector<int>& missing);

// Returns the failure of `call`, which all members have made, and which is not done on this rank's GPU by the deadline:
// another member's GPU has not reached the call. Names the ranks that send no heartbeats. May block for a second.
Failure queued_call_timeout(const std::string& call, const WaitLimits& limits);

// Reports the kLeft failure of a rank that left while this rank waits for it. Throws the failure that counts.
[[noreturn]] void throw_left(const char* op, const WaitLimits& limits, int rank);

// Calls throw_left if `rank` has left the job and still_missing() is true. Evaluates still_missing() last,
// because data that the rank sent before it left still counts.
template <class StillMissing>
void check_left(const char* op, const WaitLimits& limits, int rank, StillMissing&& still_missing) {
  if (limits.membership->has_left(rank) && still_missing()) throw_left(op, limits, rank);
}

}  // namespace gradus::dist::internal
