// The number of threads per rank: divides the cores of a host among its ranks.
#pragma once

#include <string>
#include <vector>

namespace gradus::dist::internal {

// Returns this process's affinity mask as binary digits, core i the i-th digit from the right; "": unknown.
std::string available_cores();

// Returns how many threads `rank` should use, at least 1. Each core is shared by all ranks that may use it,
// so the ranks of a host together have as many threads as cores. Per rank of the job, `cores` has the result
// of available_cores() (malformed: no cores) and `host_of` the number of its host. `quota` is how many cores
// the rank may use at a time (a cgroup's limit). If the quota is below the number of its cores, all ranks of
// the host share the quota.
int thread_share(const std::vector<std::string>& cores, const std::vector<int>& host_of, int rank, int quota);

}  // namespace gradus::dist::internal
