// How a wait for other ranks ends badly: the one place where timeouts and early leavers become errors
// that name them.
#pragma once

#include <string_view>
#include <vector>

#include "gradus/distributed/base/futex.h"

namespace gradus::dist::internal {

// Throws for a wait that ended with kFailed or kTimeout. `missing` are the ranks (of the job) that it
// was for. On a timeout it asks what those ranks do, reports a failure that names them ("rank 2 did not
// come to all_reduce #12 within 5000 ms: no sign of life for 5300 ms (stopped?)"), and throws the
// failure that counts.
[[noreturn]] void throw_wait(const char* op, Wait outcome, const Watch& watch,
                             const std::vector<int>& missing);

// To be called in waits for `rank`, when nothing has come: if it has left, reports that and throws.
// `still_missing` looks once more after leaving was seen, since what a rank sent before it left counts.
[[noreturn]] void throw_left(const char* op, const Watch& watch, int rank);

template <class StillMissing>
void check_left(const char* op, const Watch& watch, int rank, StillMissing&& still_missing) {
  if (watch.membership->has_left(rank) && still_missing()) throw_left(op, watch, rank);
}

}  // namespace gradus::dist::internal
