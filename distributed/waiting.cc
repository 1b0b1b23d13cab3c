#include "gradus/distributed/waiting.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <thread>
#include <tuple>

namespace gradus::dist::internal {
namespace {

// A rank that has shown no life for so long is taken to be stopped. Heartbeats come every half second.
constexpr Milliseconds kSilent{2000};

// "all_reduce #12 of group 'world'" where this rank's doing says so, else the plain op: what it does may be
// said by another of its threads.
std::string call_text(const char* op, const Membership& membership) {
  const std::string doing = membership.doing();
  return doing.starts_with(concat("in ", op)) ? doing.substr(3) : op;
}

// No answer may be old: a rank that lives beats twice a second.
constexpr Milliseconds kFreshLimit{800};
constexpr Milliseconds kLookAgain{50};

std::string describe(const RankStatus& status) {
  if (status.left) return "it has left the job";
  if (status.silent >= kSilent)
    return concat("no sign of life for ", status.silent.count(), " ms (stopped?)");
  if (status.doing.empty()) return "nothing is known of it";
  return "it is " + status.doing;
}

// Note [Who holds a call up]
// Some of the ranks that a call waits for may wait themselves: in the same call, for another rank, or in
// another one. So the way goes on from each rank to those that it waits for, to the ones that wait for
// nobody.
struct Blame {
  std::string call;  // that is held up
  std::vector<RankStatus> culprits;
  std::vector<RankStatus> between;  // that wait for others in another call
};

// Ranks wait for each other in several calls. Of those in the circle it is the one that most ranks miss: each of
// these calls that lacks it counts with all who are in that call. Then those to which a walk along the waiting
// comes most often.
void find_in_circle(const std::vector<RankStatus>& statuses, int from, const std::string& call,
                    Blame& blame) {
  std::map<int, const RankStatus*> of;
  for (const RankStatus& status : statuses) of[status.rank] = &status;
  const auto reached = [&](int begin) {
    std::set<int> seen;
    for (std::vector<int> way = {begin}; !way.empty();) {
      const auto it = of.find(way.back());
      way.pop_back();
      if (it == of.end()) continue;
      for (int rank : it->second->awaits)
        if (seen.insert(rank).second) way.push_back(rank);
    }
    return seen;
  };
  const std::set<int> all = reached(from);
  std::map<int, std::set<int>> from_each;
  for (int rank : all) from_each[rank] = reached(rank);
  std::vector<RankStatus> circle;
  for (int rank : all)
    if (of.count(rank) &&
        std::ranges::all_of(from_each[rank], [&](int r) { return from_each[r].count(rank) != 0; }))
      circle.push_back(*of[rank]);

  std::map<int, int64_t> missed;
  std::set<std::pair<int, std::string>> counted;
  for (const RankStatus& status : statuses) {
    const std::string& in = status.doing;
    if (std::ranges::find(circle, in, &RankStatus::doing) == circle.end()) continue;
    for (int rank : status.awaits)
      if (of.count(rank) && of[rank]->doing != in && counted.emplace(rank, in).second)
        missed[rank] += std::ranges::count(statuses, in, &RankStatus::doing);
  }
  std::map<int, double> weight;
  for (int round = 0; round < 30; ++round) {
    std::map<int, double> next;
    for (const RankStatus& status : circle) {
      next[status.rank] += 0.1;
      for (int rank : status.awaits) next[rank] += 0.9 * weight[status.rank] / double(status.awaits.size());
    }
    weight = next;
  }
  const auto key = [&](const RankStatus& s) {
    return std::tuple(missed[s.rank], std::round(1e6 * weight[s.rank]), s.doing != "in " + call);
  };
  if (circle.empty()) return;
  const RankStatus most = std::ranges::max(circle, {}, key);
  if (missed[most.rank] == 0) return;  // all are in one call
  for (const RankStatus& status : circle)
    if (key(status) == key(most)) blame.culprits.push_back(status);
  // The call that is held up: this one, unless they are in it.
  for (const RankStatus& status : circle)
    if (most.doing == "in " + call && status.doing != most.doing && status.doing.starts_with("in ") &&
        std::ranges::find(status.awaits, most.rank) != status.awaits.end())
      blame.call = status.doing.substr(3);
  if (most.doing == "in " + blame.call) blame.culprits.clear();
}

Blame find_blame(const std::vector<RankStatus>& statuses, const std::vector<int>& missing, int me,
                 const std::string& call) {
  const auto of = [&](int rank) {
    const auto it = std::ranges::find(statuses, rank, &RankStatus::rank);
    return it == statuses.end() ? nullptr : &*it;
  };
  const auto is_here = [&](const RankStatus& s) { return s.doing == "in " + call; };
  Blame blame{.call = call};
  std::vector<int> way = missing, seen = {me};
  for (size_t i = 0; i < way.size(); ++i) {
    if (std::ranges::find(seen, way[i]) != seen.end()) continue;
    seen.push_back(way[i]);
    const RankStatus* const status = of(way[i]);
    if (!status) continue;
    if (status->left || status->silent >= kSilent || (status->awaits.empty() && !is_here(*status))) {
      blame.culprits.push_back(*status);
      continue;
    }
    if (!is_here(*status)) blame.between.push_back(*status);
    way.insert(way.end(), status->awaits.begin(), status->awaits.end());
  }
  if (!blame.culprits.empty()) return blame;

  // All of them wait: then it is for a rank that shows itself by silence at least.
  for (const RankStatus& status : statuses)
    if (status.silent >= kSilent && !status.left) blame.culprits.push_back(status);
  if (!blame.culprits.empty()) return blame;

  blame.between.clear();
  find_in_circle(statuses, me, call, blame);
  return blame;
}

std::string list_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += concat(i == 0 ? "" : ", ", ranks[i]);
  return text;
}

// What ranks that live do from now on.
std::vector<RankStatus> fresh_statuses(const Watch& watch) {
  const TimePoint begin = now();
  for (;;) {
    std::vector<RankStatus> statuses = watch.membership->statuses();
    const Milliseconds since = std::chrono::duration_cast<Milliseconds>(now() - begin);
    const bool all_fresh = std::ranges::all_of(
        statuses, [&](const RankStatus& s) { return s.left || s.silent <= since || s.silent >= kSilent; });
    if (all_fresh || since >= kFreshLimit || watch.membership->failed()) return statuses;
    std::this_thread::sleep_for(kLookAgain);
  }
}

Failure timeout_failure(const char* op, const Watch& watch, std::vector<int> missing) {
  Membership& membership = *watch.membership;
  const std::string call = call_text(op, membership);
  const std::string limit = concat(" within ", watch.deadline.timeout().count(), " ms");
  std::vector<RankStatus> statuses = fresh_statuses(watch);
  if (missing.empty()) return {Failure::Kind::kTimeout, -1, concat(call, " did not end", limit)};
  if (statuses.empty())
    return {Failure::Kind::kTimeout, missing[0],
            concat(list_ranks(missing), " did not come to ", call, limit,
                   ": the job's store does not answer (is this host cut off?)")};
  RankStatus& own = statuses.emplace_back();
  own.rank = membership.rank();
  own.doing = "in " + call;
  own.awaits = missing;
  const Blame blame = find_blame(statuses, missing, membership.rank(), call);
  std::vector<int> ranks;
  for (const RankStatus& status : blame.culprits) ranks.push_back(status.rank);
  if (ranks.empty())
    return {Failure::Kind::kTimeout, -1,
            concat(call, " did not end", limit, ": ", list_ranks(missing), " did not answer in it")};

  // Where one waits elsewhere, what holds it up is another call.
  std::string text = list_ranks(ranks);
  text += blame.between.empty() ? concat(" did not come to ", blame.call, limit)
                                : concat(ranks.size() == 1 ? " holds up " : " hold up ", blame.call,
                                         ", which did not end", limit);
  for (size_t i = 0; i < blame.culprits.size(); ++i) {
    text += i == 0 ? ": " : "; ";
    if (blame.culprits.size() > 1) text += concat("rank ", blame.culprits[i].rank, ": ");
    text += describe(blame.culprits[i]);
  }
  for (const RankStatus& status : blame.between)
    text += concat("; rank ", status.rank, " is ", status.doing, ", where it waits for ",
                   list_ranks(status.awaits));
  return {Failure::Kind::kTimeout, ranks[0], std::move(text)};
}

}  // namespace

void throw_wait(const char* op, Wait outcome, const Watch& watch, const std::vector<int>& missing) {
  if (outcome == Wait::kFailed) throw_failure(op, watch.membership->failure());
  throw_failure(op, watch.membership->report(timeout_failure(op, watch, missing)));
}

void throw_left(const char* op, const Watch& watch, int rank) {
  const std::string text = concat("rank ", rank, " has left the job, and rank ", watch.membership->rank(),
                                  " waits for it in ", call_text(op, *watch.membership));
  throw_failure(op, watch.membership->report({Failure::Kind::kLeft, rank, text}));
}

}  // namespace gradus::dist::internal
