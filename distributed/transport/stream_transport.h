// StreamTransport: a Transport (messages between ranks) over streams of bytes, one in each direction between
// two ranks. Ranks of one host have ring buffers in shared memory, ranks of different hosts a TCP connection.
#pragma once

#include <map>

#include "gradus/distributed/base/file_descriptor.h"
#include "gradus/distributed/transport/segment.h"
#include "gradus/distributed/transport/transport.h"

namespace gradus::dist::internal {

// Returns the size in bytes of the segment for the rings of `members` ranks of one host.
size_t ring_bytes(int members);
// `members` are the ranks that share the segment, this one included; `index` is this rank's position in
// `members`. `sockets` has the connections to the other ranks of the job, by rank (connect_ranks.h). The
// segment starts as zeros. When the last reference is dropped, the transport waits for up to two seconds
// until the sent messages have arrived, and closes the connections.
// Errors: InternalError for a segment below ring_bytes(); ConnectionError if epoll fails.
std::shared_ptr<Transport> make_stream_transport(std::shared_ptr<Segment> segment,
                                                 std::shared_ptr<Membership> membership,
                                                 std::vector<int> members, int index,
                                                 std::map<int, FileDescriptor> sockets = {});

}  // namespace gradus::dist::internal
