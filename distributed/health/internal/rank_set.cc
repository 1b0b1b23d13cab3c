#include "gradus/distributed/health/internal/rank_set.h"

#include <algorithm>

namespace gradus::dist {

RankSet::RankSet(std::vector<int> ranks) {
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  for (size_t i = 0, end; i < ranks.size(); i = end) {
    const int step = i + 1 < ranks.size() ? ranks[i + 1] - ranks[i] : 1;
    for (end = i + 1; end < ranks.size() && ranks[end] - ranks[end - 1] == step;) ++end;
    runs_.push_back({ranks[i], ranks[end - 1], end == i + 1 ? 1 : step});
  }
}

bool RankSet::contains(int rank) const {
  return std::ranges::any_of(runs_, [&](const Run& run) {
    return rank >= run.first && rank <= run.last && (rank - run.first) % run.step == 0;
  });
}

std::vector<int> RankSet::ranks() const {
  std::vector<int> ranks;
  for (const Run& run : runs_)
    for (int rank = run.first; rank <= run.last; rank += run.step) ranks.push_back(rank);
  return ranks;
}

RankSet RankSet::from_runs(std::span<const Run> runs, int world_size) {
  RankSet set;
  for (const Run& run : runs) {
    // Runs must be in order. So no rank appears twice, and there are at most world_size ranks.
    const int before = set.runs_.empty() ? -1 : set.runs_.back().last;
    if (run.first > before && run.last >= run.first && run.last < world_size && run.step > 0 &&
        run.step <= world_size)
      set.runs_.push_back(run);
  }
  return set;
}

}  // namespace gradus::dist
