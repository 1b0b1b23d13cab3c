// Finds the ranks that block a call, by a search of the wait-for graph that the reported statuses describe,
// and makes the text of a timeout or deadlock error. Pure functions without communication. Statuses come from
// other ranks and may be inconsistent. Here a rank is its index in `statuses`, not its number in the job.
#include "gradus/distributed/health/blame.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "gradus/distributed/health/deadlock.h"
#include "gradus/tensor/base/error.h"

namespace gradus::dist {

std::string list_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += concat(i == 0 ? "" : ", ", ranks[i]);
  return text;
}

namespace {

// Returns whether a rank has left the job or sends no heartbeats, so that it will arrive nowhere.
bool is_gone(const RankStatus& status) { return status.has_left || status.silent >= kHeartbeatTimeout; }

std::string describe(const RankStatus& status) {
  if (status.has_left) return "it has left the job";
  if (status.silent >= kHeartbeatTimeout)
    return concat("no sign of life for ", status.silent.count(), " ms (stopped?)");
  if (status.activity == Activity::kUnknown) return "nothing is known of it";
  return "it is " + activity_text(status);
}

// Note [Who holds a call up]
// A rank waits for the members of its group that have not arrived at its call, or for the rank that should
// send to it. The search goes from each rank to the ranks that it waits for. Ranks that wait for nobody block
// the call. If all of them wait, they wait for each other in a circle, which never happens in a program that
// ends. Then the smallest set of ranks that explains the circle is at fault: had these ranks arrived wherever
// they are missing, all others would continue, one by one. If several sets explain it equally well, nothing
// that ranks can know tells the sets apart, and the error lists them.
//
// The graph is bipartite: ranks and Conditions. A Condition is the arrival of all its missing ranks at a call
// (of one of them if `any`). Ranks that wait for the same ranks at the same call share a Condition.
class Waits {
 public:
  explicit Waits(const std::vector<RankStatus>& statuses)
      : missing_from_(statuses.size()), conditions_of_(statuses.size()) {
    std::map<int, int> index_of;              // by rank
    std::map<CallId, std::set<int>> arrived;  // by call
    std::set<CallId> complete;                // calls at which all have arrived
    for (size_t i = 0; i < statuses.size(); ++i) {
      index_of[statuses[i].rank] = int(i);
      for (const RankWait& wait : statuses[i].waits) {
        if (!wait.call.defined()) continue;
        arrived[wait.call].insert(statuses[i].rank);
        if (wait.blocks && wait.ranks.empty()) complete.insert(wait.call);
      }
    }
    size_t budget = 1 << 22;  // limits the number of edges; more than valid statuses need
    const auto make_condition = [&](const RankWait& wait) {
      const int number = int(conditions_.size());
      Condition& condition = conditions_.emplace_back(Condition{.any = wait.any});
      if (complete.contains(wait.call)) return number;
      for (int rank : wait.ranks.ranks()) {
        const auto at = index_of.find(rank);
        if (at == index_of.end() || arrived[wait.call].contains(rank) || budget == 0) continue;
        --budget;
        condition.missing.push_back(at->second);
        missing_from_[at->second].push_back(number);
      }
      return number;
    };
    std::map<std::tuple<CallId, bool, RankSet>, int> known;
    for (size_t i = 0; i < statuses.size(); ++i) {
      if (is_gone(statuses[i])) continue;
      for (const RankWait& wait : statuses[i].waits) {
        if (!wait.blocks || wait.ranks.empty() || budget == 0) continue;
        const auto [condition, is_new] = known.try_emplace({wait.call, wait.any, wait.ranks});
        if (is_new) condition->second = make_condition(wait);
        if (conditions_[condition->second].missing.empty() ||
            std::ranges::count(conditions_of_[i], condition->second) > 0)
          continue;
        conditions_of_[i].push_back(condition->second);
        conditions_[condition->second].waiting.push_back(int(i));
      }
    }
  }

  // The conditions that a rank waits for, and those that wait for it. Ranks are indices in the statuses.
  const std::vector<int>& conditions_of(int rank) const { return conditions_of_[rank]; }
  const std::vector<int>& missing_from(int rank) const { return missing_from_[rank]; }
  const std::vector<int>& missing_in(int condition) const { return conditions_[condition].missing; }
  // Returns whether `rank` waits for `other` directly.
  bool awaits(int rank, int other) const {
    return std::ranges::find_first_of(conditions_of_[rank], missing_from_[other]) !=
           conditions_of_[rank].end();
  }

  // Returns whether all of `ranks` would continue if `some` had arrived wherever they are missing. Propagates
  // releases in breadth-first order: a released rank arrives where it is missing, which may release others.
  bool would_continue(const std::vector<int>& ranks, const std::vector<int>& some) const {
    std::vector<size_t> missing_count, unmet;
    for (const Condition& condition : conditions_)
      missing_count.push_back(condition.any ? 1 : condition.missing.size());
    for (const auto& conditions : conditions_of_) unmet.push_back(conditions.size());
    for (int rank : some) unmet[rank] = 0;
    std::vector<int> released;
    for (size_t i = 0; i < unmet.size(); ++i)
      if (unmet[i] == 0) released.push_back(int(i));
    for (size_t i = 0; i < released.size(); ++i)
      for (int condition : missing_from_[released[i]]) {
        if (missing_count[condition] == 0 || --missing_count[condition] > 0) continue;
        for (int rank : conditions_[condition].waiting)
          if (unmet[rank] > 0 && --unmet[rank] == 0) released.push_back(rank);
      }
    return std::ranges::all_of(ranks, [&](int rank) { return unmet[rank] == 0; });
  }

  // Returns all ranks in parts, the smallest part first. The ranks of a part wait for the same ranks.
  std::vector<std::vector<int>> parts() const {
    std::map<std::vector<int>, std::vector<int>> by_conditions;
    for (size_t i = 0; i < conditions_of_.size(); ++i) by_conditions[conditions_of_[i]].push_back(int(i));
    std::vector<std::vector<int>> parts;
    for (auto& [conditions, part] : by_conditions) parts.push_back(std::move(part));
    std::ranges::sort(parts, {}, [](const auto& part) { return std::pair(part.size(), part); });
    return parts;
  }

 private:
  struct Condition {
    bool any;
    std::vector<int> missing = {}, waiting = {};
  };
  std::vector<Condition> conditions_;
  std::vector<std::vector<int>> missing_from_, conditions_of_;  // of each rank: conditions
};

// The result of the search.
struct Blame {
  // Sets of ranks, one of which blocks the call; nothing tells which. The first set counts as at fault.
  std::vector<std::vector<int>> either;
  bool circle = false;       // the ranks wait for each other, and no single set explains the circle
  std::vector<int> between;  // ranks on the path to the culprits that wait in another call
  int waiter = -1;           // a rank that waits for the local rank, if the local rank is at fault; -1: none
};

// Finds the smallest sets of ranks that explain a circle: the ranks `reached` wait for each other. Ranks with
// few fellow waiters are listed first, as the likely culprits.
void explain_circle(const Waits& waits, const std::vector<int>& reached, Blame& blame) {
  const std::vector<std::vector<int>> parts = waits.parts();
  for (const std::vector<int>& part : parts) {
    std::map<std::vector<int>, bool> explains;  // by missing_from: the answer depends on that alone
    for (int rank : part) {
      const auto [known, is_new] = explains.try_emplace(waits.missing_from(rank));
      if (is_new) known->second = waits.would_continue(reached, {rank});
      if (known->second) blame.either.push_back({rank});
    }
  }
  for (const std::vector<int>& part : parts)
    if ((blame.either.empty() || blame.either[0].size() == part.size()) && part.size() > 1 &&
        waits.would_continue(reached, part))
      blame.either.push_back(part);
  blame.circle = blame.either.size() != 1;
  if (blame.either.empty())
    for (blame.either.emplace_back(); const std::vector<int>& part : parts)
      std::ranges::copy_if(part, std::back_inserter(blame.either[0]),
                           [&](int rank) { return std::ranges::find(reached, rank) != reached.end(); });
}

// Searches from rank `local` along the waits. `call` is the group's call that `local` is in; undefined if it
// is in none. Culprits are the reached ranks that are gone, or wait for nobody outside of `call`.
Blame find_blame(const std::vector<RankStatus>& statuses, const Waits& waits, int local, const CallId& call) {
  const auto is_in_call = [&](int rank) {
    return rank == local ||
           (call.defined() && std::ranges::count(statuses[rank].waits, call, &RankWait::call) > 0);
  };
  Blame blame;
  std::vector<int> reached = {local}, culprits;
  std::set<int> seen = {local}, seen_conditions;
  for (size_t i = 0; i < reached.size(); ++i) {
    const int rank = reached[i];
    for (int condition : waits.conditions_of(rank)) {
      if (!seen_conditions.insert(condition).second) continue;
      for (int next : waits.missing_in(condition))
        if (seen.insert(next).second) reached.push_back(next);
    }
    if (is_gone(statuses[rank]) || (waits.conditions_of(rank).empty() && !is_in_call(rank)))
      culprits.push_back(rank);
    else if (!is_in_call(rank))
      blame.between.push_back(rank);
  }
  // All reached ranks wait. Then the silent ranks of the job are at fault, if there are any.
  if (culprits.empty()) {
    for (int rank = 0; rank < int(statuses.size()); ++rank)
      if (statuses[rank].silent >= kHeartbeatTimeout && !statuses[rank].has_left) culprits.push_back(rank);
    blame.between.clear();
  }
  // Stopped ranks first: those that are outside of calls may be late alone because of them.
  std::ranges::sort(culprits, {}, [&](int rank) {
    const RankStatus& s = statuses[rank];
    return std::pair(s.has_left || s.silent < kHeartbeatTimeout, rank);
  });
  if (!culprits.empty()) blame.either = {culprits};
  if (!culprits.empty() || std::ranges::all_of(reached, is_in_call)) return blame;

  explain_circle(waits, reached, blame);
  if (blame.circle) return blame;
  const int culprit = blame.either[0][0];
  if (waits.awaits(local, culprit)) return blame;
  const auto other = std::ranges::find_if(reached, [&](int rank) { return waits.awaits(rank, culprit); });
  if (other == reached.end()) return blame;
  if (culprit == local)
    blame.waiter = *other;
  else
    blame.between = {*other};
  return blame;
}

// Returns "rank 2 did not come to all_reduce #3 within 5000 ms: ...". Empty `limit`: a call
// that can never end.
std::string blame_text(const std::vector<RankStatus>& statuses, const Waits& waits, const Blame& blame,
                       const std::string& call, const std::string& limit) {
  constexpr size_t kMaxListed = 16;
  const bool for_ever = limit.empty();
  const auto list = [&](const auto& places) {
    std::vector<int> ranks;
    for (int place : places) ranks.push_back(statuses[place].rank);
    return list_ranks(ranks);
  };
  std::string text;
  std::vector<int> culprits;
  for (const std::vector<int>& one : blame.either) {
    if (culprits.size() >= kMaxListed) {
      text += " or others";
      break;
    }
    text += concat(culprits.empty() ? "" : " or ", list(one));
    culprits.insert(culprits.end(), one.begin(), one.end());
  }
  if (blame.waiter >= 0 && statuses[blame.waiter].activity == Activity::kInCall)
    text += concat(" did not come to ", statuses[blame.waiter].call, limit);
  else if (blame.between.empty() && !blame.circle)
    text += concat(" did not come to ", call, limit);
  else  // the culprit waits in another call, so "did not come" would mislead
    text += concat(blame.either[0].size() == 1 ? " holds up " : " hold up ", call,
                   for_ever ? ", which cannot end" : ", which did not end", limit,
                   blame.circle ? ": they wait for each other" : "");
  const auto awaited_by = [&](int rank) {
    std::set<int> awaited;
    for (int condition : waits.conditions_of(rank))
      awaited.insert(waits.missing_in(condition).begin(), waits.missing_in(condition).end());
    return concat(", where it waits for ", list(awaited));
  };
  for (size_t i = 0; i < culprits.size(); ++i) {
    const RankStatus& status = statuses[culprits[i]];
    text += i == 0 ? ": " : "; ";
    if (culprits.size() > 1) text += concat("rank ", status.rank, ": ");
    text += describe(status);
    if (for_ever) text += awaited_by(culprits[i]);
  }
  for (size_t i = 0; i < std::min(blame.between.size(), kMaxListed); ++i) {
    const RankStatus& status = statuses[blame.between[i]];
    text += concat("; rank ", status.rank, " is ", activity_text(status), awaited_by(blame.between[i]));
  }
  return text;
}

}  // namespace

RanksAtFault find_ranks_at_fault(const std::vector<RankStatus>& statuses, int local, const CallId& call,
                                 const std::string& text, const std::string& limit) {
  const Waits waits(statuses);
  const Blame blame = find_blame(statuses, waits, local, call);
  if (blame.either.empty()) return {};
  return {statuses[blame.either[0][0]].rank, blame_text(statuses, waits, blame, text, limit)};
}

Failure deadlock_failure(const std::vector<RankStatus>& statuses, const std::vector<int>& ranks) {
  // Other ranks may be missing too, but they may still come: only the deadlocked ones count.
  std::vector<RankStatus> deadlocked;
  for (int rank : ranks) deadlocked.push_back(statuses[rank]);
  // The text names the call that most ranks are in. Ranks in several calls do not count: their status may
  // name another of their calls.
  const auto blocks = [](const RankWait& wait) { return wait.blocks && wait.call.defined(); };
  std::map<CallId, std::vector<int>> in_call;
  for (size_t i = 0; i < deadlocked.size(); ++i) {
    const std::vector<RankWait>& waits = deadlocked[i].waits;
    if (std::ranges::count_if(waits, blocks) == 1)
      in_call[std::ranges::find_if(waits, blocks)->call].push_back(int(i));
  }
  const auto most =
      std::ranges::max_element(in_call, {}, [](const auto& entry) { return entry.second.size(); });
  const int local = most == in_call.end() ? 0 : most->second[0];
  const RankStatus& status = deadlocked[local];
  const RanksAtFault culprits =
      find_ranks_at_fault(deadlocked, local, most == in_call.end() ? CallId() : most->first,
                          status.activity == Activity::kInCall ? status.call : activity_text(status), "");
  return {Failure::Kind::kDeadlock, culprits.rank, culprits.text};
}

}  // namespace gradus::dist
