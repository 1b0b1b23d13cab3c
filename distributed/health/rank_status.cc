// RankSet: greedy division of a sorted list of ranks into arithmetic sequences; and the text of a status.
#include "gradus/distributed/health/rank_status.h"

#include <algorithm>

#include "gradus/tensor/base/error.h"

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

std::string activity_text(const RankStatus& status) {
  switch (status.activity) {
    case Activity::kUnknown:
      return "";
    case Activity::kNotJoined:
      return "not in the job yet";
    case Activity::kInCall:
      return "in " + status.call;
    case Activity::kAfterTimeout:
      return "after a timeout of " + status.call;
    case Activity::kOutside:
      break;
  }
  std::string text = concat("outside of any collective", status.call.empty() ? "" : ", after ", status.call);
  for (const std::string& call : status.posted) text += concat(", with ", call, " under way");
  return text;
}

}  // namespace gradus::dist
