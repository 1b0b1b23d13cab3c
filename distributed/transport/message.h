// MessageBackend: collectives as messages between pairs of ranks, which need not share memory. Broadcasts go
// down a tree or along a chain. exchange and short all_reduce collect all data on every member in log2(size)
// steps. Long reductions, all_gather and exchange_blocks send directly to the member that needs the data.
#pragma once

#include "gradus/distributed/transport/backend.h"
#include "gradus/distributed/transport/transport.h"

namespace gradus::dist::internal {

// `members`: the members' ranks in the job; `index`: this rank's position in `members`. `group_id` is unique
// among the backends of the transport and the same on all members: it separates their messages.
std::unique_ptr<Backend> make_message_backend(std::shared_ptr<Transport> transport, std::vector<int> members,
                                              int index, uint32_t group_id);

}  // namespace gradus::dist::internal
