#include "gradus/distributed/health/deadlock.h"

#include <map>

namespace gradus::dist {

std::vector<int> find_deadlock(const std::vector<RankStatus>& statuses) {
  struct Call {
    int missing = 0;  // members that are stuck elsewhere
    std::vector<int> waiting = {};
  };
  std::vector<Call> calls;
  std::vector<std::vector<int>> missing_from(statuses.size());  // calls, by rank
  std::vector<char> is_stuck(statuses.size());
  std::map<int, int> index_of;
  for (size_t i = 0; i < statuses.size(); ++i) {
    is_stuck[i] = statuses[i].stuck != 0 && !statuses[i].has_left;
    index_of[statuses[i].rank] = int(i);
  }

  std::map<std::pair<CallId, RankSet>, size_t> known;
  size_t budget = 1 << 22;  // more than valid statuses need
  for (size_t i = 0; i < statuses.size(); ++i) {
    if (!is_stuck[i]) continue;
    for (const RankWait& wait : statuses[i].waits) {
      if (!wait.call.defined()) continue;
      const auto [it, is_new] = known.try_emplace({wait.call, wait.ranks}, calls.size());
      if (is_new) {
        Call& call = calls.emplace_back();
        for (int member : wait.ranks.ranks()) {
          if (budget-- == 0) return {};
          const auto at = index_of.find(member);
          if (at == index_of.end() || !is_stuck[at->second]) continue;
          const auto& arrived = statuses[at->second].arrived;
          const auto last = arrived.find(wait.call.series);
          if (last != arrived.end() && last->second >= wait.call.sequence) continue;
          ++call.missing;
          missing_from[at->second].push_back(int(it->second));
        }
      }
      calls[it->second].waiting.push_back(int(i));
    }
  }

  std::vector<int> ending;
  for (size_t i = 0; i < calls.size(); ++i)
    if (calls[i].missing == 0) ending.push_back(int(i));
  for (size_t i = 0; i < ending.size(); ++i)
    for (int rank : calls[ending[i]].waiting) {
      if (!is_stuck[rank]) continue;
      is_stuck[rank] = false;
      for (int call : missing_from[rank])
        if (--calls[call].missing == 0) ending.push_back(call);
    }

  std::vector<int> deadlocked;
  for (size_t i = 0; i < statuses.size(); ++i)
    if (is_stuck[i]) deadlocked.push_back(int(i));
  return deadlocked;
}

}  // namespace gradus::dist
