// any_rank: logical OR of a bool over ranks. With any_rank, either all ranks or none skip a GradScaler's step.
#pragma once

#include "gradus/distributed/group/group.h"

namespace gradus::dist {

// Returns, on all ranks of the group, whether `local` is true on at least one of them. Collective: all ranks of the
// group must call any_rank, and the call blocks until all have called it. An all_reduce of a flag on the CPU.
// Errors: those of all_reduce (gradus/distributed/group/collectives.h), such as ValueError if this rank is no
// member of the group, and PeerError, TimeoutError or MismatchError if another rank does not call any_rank.
bool any_rank(bool local, const Group& group = {});

}  // namespace gradus::dist
