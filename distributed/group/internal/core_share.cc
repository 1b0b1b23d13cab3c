// thread_share: a core that k ranks of the host may use counts as 1/k for each of them. If the host allows
// fewer cores at a time (`quota`) than a rank may use, the ranks share the quota equally.
#include "gradus/distributed/group/internal/core_share.h"

#include <sched.h>

#include <algorithm>
#include <bitset>
#include <stdexcept>

namespace gradus::dist::internal {
namespace {

constexpr int kMaxCores = CPU_SETSIZE;
using Cores = std::bitset<kMaxCores>;

// Parses an affinity mask of another rank; no cores if it is malformed.
Cores parse_mask(const std::string& text) {
  try {
    return Cores(text);
  } catch (const std::invalid_argument&) {
    return {};
  }
}

}  // namespace

std::string available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return "";
  Cores cores;
  for (int core = 0; core < kMaxCores; ++core) cores[size_t(core)] = CPU_ISSET(core, &set);
  const std::string text = cores.to_string();
  return text.substr(std::min(text.find('1'), text.size()));
}

int thread_share(const std::vector<std::string>& cores, const std::vector<int>& host_of, int rank,
                 int quota) {
  std::vector<int> users(kMaxCores);  // per core: the number of ranks that may use it
  Cores own;
  int ranks = 0;
  for (size_t r = 0; r < cores.size(); ++r) {
    if (host_of[r] != host_of[size_t(rank)]) continue;
    const Cores mask = parse_mask(cores[r]);
    for (int core = 0; core < kMaxCores; ++core) users[size_t(core)] += mask[size_t(core)];
    if (int(r) == rank) own = mask;
    ++ranks;
  }
  double share = 0;
  for (int core = 0; core < kMaxCores; ++core)
    if (own[size_t(core)]) share += 1.0 / users[size_t(core)];
  if (size_t(quota) < own.count()) share = std::min(share, double(quota) / ranks);
  return std::max(1, int(share + 1e-6));  // 1e-6: three thirds are 1
}

}  // namespace gradus::dist::internal
