// Implementation of balance by dynamic programming in two passes: minimal time of the slowest stage, then
// minimal crossing bytes.
#include "gradus/distributed/pipeline/internal/balance.h"

#include <algorithm>
#include <limits>

namespace gradus::dist::internal {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kTolerance = 1.01;  // relative accuracy of measured times

// Dynamic programming: best_cost[s][end] is the minimal cost of the first `end` units in s stages, and
// begins[s][end] the begin of the last of them. cost(c, stage, begin, end) returns the cost of stages that
// cost c and a further stage of units [begin, end). Returns the stages' ends; empty if there is no finite cost.
template <class Cost> std::vector<int> best_ends(int units, int stages, const Cost& cost) {
  std::vector<std::vector<double>> best_cost(size_t(stages) + 1,
                                             std::vector<double>(size_t(units) + 1, kInfinity));
  std::vector<std::vector<int>> begins(size_t(stages), std::vector<int>(size_t(units) + 1, -1));
  best_cost[0][0] = 0;
  for (int s = 0; s < stages; ++s)
    for (int end = s + 1; end <= units; ++end)
      for (int begin = s; begin < end; ++begin) {
        if (best_cost[s][begin] == kInfinity) continue;
        const double c = cost(best_cost[s][begin], s, begin, end);
        if (c < best_cost[s + 1][end]) best_cost[s + 1][end] = c, begins[s][end] = begin;
      }
  if (best_cost[stages][units] == kInfinity) return {};
  std::vector<int> ends(static_cast<size_t>(stages), units);
  for (int s = stages - 1; s > 0; --s) ends[s - 1] = begins[s][ends[s]];
  return ends;
}

}  // namespace

std::vector<int> balance(const std::vector<double>& bytes_after, int stages, const StageSeconds& seconds) {
  const int n = int(bytes_after.size());
  const auto fastest = best_ends(n, stages, [&](double previous_cost, int stage, int begin, int end) {
    return std::max(previous_cost, seconds(stage, begin, end));
  });
  if (fastest.empty()) return {};
  double slowest = 0;
  for (int s = 0, begin = 0; s < stages; begin = fastest[s++])
    slowest = std::max(slowest, seconds(s, begin, fastest[s]));
  return best_ends(n, stages, [&](double previous_cost, int stage, int begin, int end) {
    if (seconds(stage, begin, end) > slowest * kTolerance) return kInfinity;
    return previous_cost + (end < n ? bytes_after[end - 1] : 0);
  });
}

}  // namespace gradus::dist::internal
