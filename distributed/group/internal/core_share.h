// Divides the cores of a host among its ranks.
#pragma once

#include <string>
#include <vector>

namespace gradus::dist::internal {

// Returns the cores that this process may use: a digit 0 or 1 per core, the last core first.
std::string available_cores();

// Returns how many threads `rank` should use; at least 1. Each core is shared by all ranks that may use it,
// so the ranks of a host together have as many threads as cores. `cores` has what available_cores() returned on
// each rank; a list that cannot be read counts as no cores. `host_of` has each rank's host. `quota` is how
// many of its cores the rank may use at a time. If the quota is below the number of cores, all ranks of the
// host share the quota.
int thread_share(const std::vector<std::string>& cores, const std::vector<int>& host_of, int rank, int quota);

}  // namespace gradus::dist::internal
