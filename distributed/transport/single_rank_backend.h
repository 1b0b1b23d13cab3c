// The Backend (backend.h) of a group of one rank: every collective is a local copy, or does nothing.
#pragma once

#include "gradus/distributed/transport/device_collectives.h"

namespace gradus::dist::internal {

// Its functions never fail or wait, and ignore the Call, the root and the ReduceOp.
std::unique_ptr<Backend> make_single_rank_backend();
std::unique_ptr<DeviceCollectives> make_single_rank_on_gpu(const Stream& stream);

}  // namespace gradus::dist::internal
