// Parsing of /proc/self/cgroup, cpu.max and memory.max.
#include "gradus/tensor/runtime/internal/cgroup.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

namespace gradus::internal {
namespace {

// Returns the path of this process's group relative to the root; "" if it is the root or unknown. A path with ".."
// is outside the file system of this container.
std::string own_group(const std::string& file) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("0::/") && line.find("..") == std::string::npos)
      return line == "0::/" ? "" : line.substr(3);
  return "";
}

// Calls f(stream) with file `name` of this process's group and of each ancestor up to the root.
template <class F> void for_each_group(const CgroupFiles& files, const char* name, F f) {
  std::string group = own_group(files.self);
  for (;;) {
    if (std::ifstream file(files.groups + group + "/" + name); file) f(file);
    if (group.empty()) return;
    group.resize(group.rfind('/'));
  }
}

}  // namespace

int cgroup_cores(const CgroupFiles& files) {
  int cores = 1 << 20;
  for_each_group(files, "cpu.max", [&](std::ifstream& file) {  // "200000 100000" or "max 100000"
    double quota = 0, period = 0;
    if (file >> quota >> period && quota > 0 && period > 0)
      cores = std::min(cores, static_cast<int>(std::clamp(std::ceil(quota / period), 1.0, double(1 << 20))));
  });
  return cores;
}

int64_t cgroup_memory(const CgroupFiles& files) {
  int64_t bytes = std::numeric_limits<int64_t>::max();
  for_each_group(files, "memory.max", [&](std::ifstream& file) {  // bytes or "max"
    if (int64_t limit = 0; file >> limit && limit > 0) bytes = std::min(bytes, limit);
  });
  return bytes;
}

}  // namespace gradus::internal
