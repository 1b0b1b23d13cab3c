#include "gradus/distributed/base/internal/rank_set.h"

#include <algorithm>
#include <charconv>

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

std::string RankSet::text(size_t most_bytes) const {
  std::string text;
  for (const Run& run : runs_) {
    std::string one = concat(text.empty() ? "" : ",", run.first);
    if (run.last > run.first) one += concat('-', run.last);
    if (run.step > 1) one += concat('/', run.step);
    if (text.size() + one.size() <= most_bytes) text += one;
  }
  return text;
}

RankSet RankSet::parse(std::string_view text, int world_size) {
  RankSet set;
  const char *at = text.data(), *const stop = at + text.size();
  const auto number = [&](int& value) {
    const auto [next, error] = std::from_chars(at, stop, value);
    at = next;
    return error == std::errc() && value >= 0;
  };
  const auto sign = [&](char one) { return at < stop && *at == one && ++at; };
  while (at < stop) {
    Run run{0, 0, 1};
    bool good = number(run.first);
    run.last = run.first;
    if (good && sign('-')) good = number(run.last);
    if (good && sign('/')) good = number(run.step);
    // Runs must be in order. So no rank comes twice, and there are at most world_size ranks.
    const int before = set.runs_.empty() ? -1 : set.runs_.back().last;
    if (good && run.first > before && run.last >= run.first && run.last < world_size && run.step > 0 &&
        run.step <= world_size)
      set.runs_.push_back(run);
    at = std::find(at, stop, ',');
    if (at < stop) ++at;
  }
  return set;
}

}  // namespace gradus::dist
