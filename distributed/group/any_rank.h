// any_rank: lets ranks agree whether to do something, such as skipping a GradScaler's step.
#pragma once

#include "gradus/distributed/group/group.h"

namespace gradus::dist {

// Returns on all ranks whether `here` is true on any rank of the group. Collective.
bool any_rank(bool here, const Group& group = {});

}  // namespace gradus::dist
