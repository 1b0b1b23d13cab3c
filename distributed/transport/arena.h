// ArenaBackend: collectives of ranks that share memory. Data goes through a few buffers per rank in
// one segment, in rounds: every member writes, waits for all others, and reads (Note [Rounds] in arena.cc).
#pragma once

#include "gradus/distributed/transport/backend.h"
#include "gradus/distributed/transport/segment.h"

namespace gradus::dist::internal {

// Returns the size in bytes of the segment for a group of `members` ranks.
size_t arena_bytes(int members);
// `segment`: zero-initialized, of at least arena_bytes(), the same for all members. `members`: the members'
// ranks in the job, all on this host; `index`: this rank's position in `members`.
std::unique_ptr<Backend> make_arena_backend(std::shared_ptr<Segment> segment, std::vector<int> members,
                                            int index);

}  // namespace gradus::dist::internal
