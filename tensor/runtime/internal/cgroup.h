// Limits of containers: what the groups of processes (cgroup v2) that this one belongs to may use.
#pragma once

#include <cstdint>
#include <string>

namespace gradus::internal {

// Where the system says which groups there are, and which one is this process's.
struct CgroupFiles {
  std::string groups = "/sys/fs/cgroup";
  std::string self = "/proc/self/cgroup";
};

// Returns the number of cores that the CPU quotas of the group and of all groups around it leave, rounded
// up; a large number where there is no quota.
int cgroup_cores(const CgroupFiles& files = {});
// Returns the bytes of memory that they leave; a large number where there is no limit.
int64_t cgroup_memory(const CgroupFiles& files = {});

}  // namespace gradus::internal
