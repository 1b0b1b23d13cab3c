// CPU and memory limits of containers, from the cgroup v2 file system.
#pragma once

#include <cstdint>
#include <string>

namespace gradus::internal {

// Paths of the cgroup file system and of the file with this process's group. Tests replace them.
struct CgroupFiles {
  std::string groups = "/sys/fs/cgroup";
  std::string self = "/proc/self/cgroup";
};

// Returns the lowest CPU quota (cpu.max) of this process's group and its ancestors in cores, rounded up; a large
// number if there is no quota.
int cgroup_cores(const CgroupFiles& files = {});
// Returns the lowest memory limit (memory.max) of these groups in bytes; a large number if there is no limit.
int64_t cgroup_memory(const CgroupFiles& files = {});

}  // namespace gradus::internal
