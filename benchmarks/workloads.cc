// The registry of benchmark workloads (workloads.h).
#include "benchmarks/workloads.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace gradus::bench {
namespace {

using Families = std::map<std::string, std::vector<Entry>>;
Families& families(Side side) {
  static std::map<Side, Families> all;
  return all[side];
}

}  // namespace

AddWorkloads::AddWorkloads(Side side, const std::string& family, std::vector<Entry> entries) {
  auto& list = families(side)[family];
  list.insert(list.end(), entries.begin(), entries.end());
}

std::vector<std::pair<std::string, Entry>> workloads(Side side) {
  std::vector<std::pair<std::string, Entry>> all;
  for (const auto& [family, entries] : families(side))
    for (const Entry& e : entries) all.emplace_back(family, e);
  return all;
}

}  // namespace gradus::bench
