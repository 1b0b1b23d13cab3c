// any_rank: what ranks agree by on whether to do something, such as skipping the step of a GradScaler.
#pragma once

#include "gradus/distributed/group/group.h"

namespace gradus::dist {

// Returns whether any rank of the group says so, to all. Collective.
bool any_rank(bool here, const Group& group = {});

}  // namespace gradus::dist
