// find_deadlock: builds the bipartite graph of stuck ranks and of the calls that they wait in, then releases
// calls without missing members, and their waiting ranks, in breadth-first order. Statuses come from other
// processes and may be inconsistent.
#include "gradus/distributed/health/deadlock.h"

#include <map>

namespace gradus::dist {

std::vector<int> find_deadlock(const std::vector<RankStatus>& statuses) {
  struct Call {
    int missing = 0;                // number of stuck ranks that have not arrived at the call
    std::vector<int> waiting = {};  // indices of the stuck ranks in the call
  };
  std::vector<Call> calls;
  std::vector<std::vector<int>> missing_from(statuses.size());  // per rank: calls at which it has not arrived
  std::vector<char> is_stuck(statuses.size());                  // false: not stuck, or released
  std::map<int, int> index_of;                                  // rank to index in `statuses`
  for (size_t i = 0; i < statuses.size(); ++i) {
    is_stuck[i] = statuses[i].stuck != 0 && !statuses[i].has_left;
    index_of[statuses[i].rank] = int(i);
  }
  std::map<std::pair<CallId, RankSet>, size_t> known;  // to index in `calls`
  size_t budget = 1 << 22;                             // limits the edges; more than valid statuses need
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
  std::vector<int> released;  // calls at which no stuck rank is missing
  for (size_t i = 0; i < calls.size(); ++i)
    if (calls[i].missing == 0) released.push_back(int(i));
  for (size_t i = 0; i < released.size(); ++i)
    for (int rank : calls[released[i]].waiting) {
      if (!is_stuck[rank]) continue;
      is_stuck[rank] = false;
      for (int call : missing_from[rank])
        if (--calls[call].missing == 0) released.push_back(call);
    }
  std::vector<int> deadlocked;
  for (size_t i = 0; i < statuses.size(); ++i)
    if (is_stuck[i]) deadlocked.push_back(int(i));
  return deadlocked;
}

}  // namespace gradus::dist
