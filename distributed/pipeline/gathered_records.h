// Gathers what ranks recorded, with the times of one clock.
#pragma once

#include <functional>
#include <vector>

#include "gradus/distributed/group/group.h"
#include "gradus/distributed/pipeline/pipeline_record.h"

namespace gradus::dist::internal {

// Returns how many nanoseconds this rank's clock is ahead of the first member's, exact to half of the
// shortest of several round trips. Collective over the group, which may carry no other messages.
int64_t clock_offset(const Group& group, const std::function<int64_t()>& now);

// Returns the members' records, in order, on the group's first rank, and nothing elsewhere. Times become
// those of the first rank's clock. Collective, as above.
std::vector<RankRecord> gathered_records(std::vector<RankRecord> own, const Group& group);

}  // namespace gradus::dist::internal
