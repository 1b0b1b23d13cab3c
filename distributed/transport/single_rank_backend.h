// The Backend (backend.h) of a group of one rank: every collective is a local copy, or does nothing.
#pragma once

#include "gradus/distributed/transport/backend.h"

namespace gradus::dist::internal {

// Its functions never fail or wait, and ignore the Call, the root and the ReduceOp.
std::unique_ptr<Backend> make_single_rank_backend();

}  // namespace gradus::dist::internal
