// HybridTransport: messages go through memory to ranks of this host, and over the network to others.
#pragma once

#include "gradus/distributed/transport/transport.h"

namespace gradus::dist::internal {

// host_of has the host of each rank of the job.
std::shared_ptr<Transport> make_hybrid_transport(std::shared_ptr<Transport> within,
                                                 std::shared_ptr<Transport> across, std::vector<int> host_of,
                                                 int rank);

}  // namespace gradus::dist::internal
