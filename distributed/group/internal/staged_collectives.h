// StagedCollectives: collectives on memory of GPUs by those on host memory. A call copies its inputs to the host, waits
// until they are there, makes the host's call, and queues copies of the results to the GPU.
#pragma once

#include <memory>

#include "gradus/distributed/transport/device_collectives.h"

namespace gradus::dist::internal {

// `host` must outlive the object. `index` is this member's in the group.
std::unique_ptr<DeviceCollectives> make_staged_collectives(Backend& host, int index, const Stream& stream);

}  // namespace gradus::dist::internal
