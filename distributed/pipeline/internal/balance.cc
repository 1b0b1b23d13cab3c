#include "gradus/distributed/pipeline/internal/balance.h"

#include <algorithm>
#include <limits>

namespace gradus::dist::internal {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kAlike = 1.01;  // measured times are not more exact than that

// The least cost of the first `end` units in the first `stage + 1` stages, and where the last of them begins.
// cost(before, stage, begin, end) adds a stage to what the stages before it cost.
template <class Cost> std::vector<int> best_ends(int units, int stages, const Cost& cost) {
  std::vector<std::vector<double>> least(size_t(stages) + 1, std::vector<double>(size_t(units) + 1, kNever));
  std::vector<std::vector<int>> begins(size_t(stages), std::vector<int>(size_t(units) + 1, -1));
  least[0][0] = 0;
  for (int s = 0; s < stages; ++s)
    for (int end = s + 1; end <= units; ++end)
      for (int begin = s; begin < end; ++begin) {
        if (least[s][begin] == kNever) continue;
        const double c = cost(least[s][begin], s, begin, end);
        if (c < least[s + 1][end]) least[s + 1][end] = c, begins[s][end] = begin;
      }
  if (least[stages][units] == kNever) return {};
  std::vector<int> ends(static_cast<size_t>(stages), units);
  for (int s = stages - 1; s > 0; --s) ends[s - 1] = begins[s][ends[s]];
  return ends;
}

}  // namespace

std::vector<int> balance(const std::vector<double>& bytes_after, int stages, const StageSeconds& seconds) {
  const int n = int(bytes_after.size());
  const auto fastest = best_ends(n, stages, [&](double before, int stage, int begin, int end) {
    return std::max(before, seconds(stage, begin, end));
  });
  if (fastest.empty()) return {};
  double slowest = 0;
  for (int s = 0, begin = 0; s < stages; begin = fastest[s++])
    slowest = std::max(slowest, seconds(s, begin, fastest[s]));
  return best_ends(n, stages, [&](double before, int stage, int begin, int end) {
    if (seconds(stage, begin, end) > slowest * kAlike) return kNever;
    return before + (end < n ? bytes_after[end - 1] : 0);
  });
}

}  // namespace gradus::dist::internal
