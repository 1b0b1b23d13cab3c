// How many threads each of the ranks takes that share the cores of a host.
#pragma once

#include <string>
#include <vector>

namespace gradus::dist::internal {

// The cores that this process may use, as "0-3,8".
std::string own_cores();

// The part of its host's cores that is left to `rank`: each core is shared by all ranks that may use it,
// so that the ranks of a host together have as many threads as cores. At least 1. `cores` has what
// own_cores() returned on each rank, `host_of` each rank's host. A list that cannot be read counts as no
// cores. `quota` is how many of its cores the rank may use at a time; where that is fewer than it has, all
// ranks of the host share it.
int share_of_cores(const std::vector<std::string>& cores, const std::vector<int>& host_of, int rank,
                   int quota);

}  // namespace gradus::dist::internal
