// RingTransport: messages between ranks of one host. Each ordered pair of ranks has a ring of bytes
// in shared memory.
#pragma once

#include "gradus/distributed/transport/segment.h"
#include "gradus/distributed/transport/transport.h"

namespace gradus::dist::internal {

size_t ring_bytes(int members);
// `members` are the ranks of this host; `index` is this rank's place among them.
std::shared_ptr<Transport> make_ring_transport(std::shared_ptr<Segment> segment,
                                               std::shared_ptr<Membership> membership,
                                               std::vector<int> members, int index);

}  // namespace gradus::dist::internal
