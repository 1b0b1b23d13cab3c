#include "gradus/distributed/group/internal/core_share.h"

#include <sched.h>

#include <algorithm>
#include <bitset>
#include <charconv>

#include "gradus/tensor/base/error.h"

namespace gradus::dist::internal {
namespace {

constexpr int kMostCores = CPU_SETSIZE;
using Cores = std::bitset<kMostCores>;

// Reads "0-3,8". Other ranks wrote the text, so it may be malformed.
Cores read(const std::string& list) {
  Cores cores;
  const char *at = list.data(), *end = at + list.size();
  const auto number = [&](int& n) {
    const auto [next, error] = std::from_chars(at, end, n);
    if (error != std::errc() || n < 0 || n >= kMostCores) return false;
    at = next;
    return true;
  };
  while (at < end) {
    int first = 0;
    if (!number(first)) return {};
    int last = first;
    if (at < end && *at == '-' && (++at, !number(last))) return {};
    for (int core = first; core <= last; ++core) cores.set(size_t(core));
    if (at < end && *at++ != ',') return {};
  }
  return cores;
}

}  // namespace

std::string own_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return "";
  std::string list;
  for (int core = 0; core < kMostCores; ++core) {
    if (!CPU_ISSET(core, &set)) continue;
    int last = core;
    while (last + 1 < kMostCores && CPU_ISSET(last + 1, &set)) ++last;
    if (!list.empty()) list += ',';
    list += last == core ? concat(core) : concat(core, '-', last);
    core = last;
  }
  return list;
}

int share_of_cores(const std::vector<std::string>& cores, const std::vector<int>& host_of, int rank,
                   int quota) {
  std::vector<int> users(kMostCores);
  Cores own;
  int ranks = 0;
  for (size_t r = 0; r < cores.size(); ++r) {
    if (host_of[r] != host_of[size_t(rank)]) continue;
    const Cores of = read(cores[r]);
    for (int core = 0; core < kMostCores; ++core) users[size_t(core)] += of[size_t(core)];
    if (int(r) == rank) own = of;
    ++ranks;
  }
  double share = 0;
  for (int core = 0; core < kMostCores; ++core)
    if (own[size_t(core)]) share += 1.0 / users[size_t(core)];
  if (size_t(quota) < own.count()) share = std::min(share, double(quota) / ranks);
  return std::max(1, int(share + 1e-6));
}

}  // namespace gradus::dist::internal
