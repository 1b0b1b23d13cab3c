// Gathers the ranks' step records, with all times converted to the first rank's clock.
#pragma once

#include <functional>
#include <vector>

#include "gradus/distributed/group/group.h"
#include "gradus/distributed/pipeline/pipeline_record.h"

namespace gradus::dist::internal {

// Returns (this rank's clock - the first member's clock) in nanoseconds, measured as in NTP: the error is at
// most half of the shortest of several round trips. Collective; the group must have no other traffic.
int64_t clock_offset(const Group& group, const std::function<int64_t()>& now);

// Returns the members' records, in order, on the group's first rank, and an empty list on other ranks. Times
// are converted to the first rank's clock. Collective; the group must have no other traffic.
std::vector<RankRecord> gathered_records(std::vector<RankRecord> own, const Group& group);

}  // namespace gradus::dist::internal
