// Errors of waits for other ranks: on a timeout, queries the status of all ranks, finds the rank that blocks
// the call (blame.h), and reports one Failure that all ranks of the job throw. Runs on the waiting thread,
// for up to about a second.
#include "gradus/distributed/health/waiting.h"

#include <algorithm>
#include <thread>

#include "gradus/distributed/health/blame.h"

namespace gradus::dist::internal {
namespace {

// Returns this rank's status, with the wait of this thread's call added. If none of the waits blocks on a
// rank, adds a wait for `missing`.
RankStatus own_status(const Membership& membership, const std::vector<int>& missing) {
  RankStatus own = membership.status();
  if (const WaitScope* const call = WaitScope::current_call()) {
    own.activity = Activity::kInCall;
    own.call = call->wait().text;
    own.waits.push_back(call->rank_wait());
  }
  if (std::ranges::none_of(own.waits,
                           [](const RankWait& wait) { return wait.blocks && !wait.ranks.empty(); }))
    own.waits.push_back({.ranks = RankSet(missing)});
  return own;
}

// Maximal wait for heartbeats that are newer than the timeout. A live rank sends one twice a second.
constexpr Milliseconds kFreshLimit{800};
constexpr Milliseconds kLookAgain{50};

// Returns the ranks' statuses. Those of live ranks are from after the call began, unless kFreshLimit is over.
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

// Returns the failure to report for a wait that timed out. Its rank is the rank at fault, or -1 if no rank
// can be named. `missing`: the ranks in the job that the wait was for; empty: unknown.
Failure timeout_failure(const char* op, const Watch& watch, std::vector<int> missing) {
  Membership& membership = *watch.membership;
  const std::string call = membership.call_text(op);
  const std::string limit = concat(" within ", watch.deadline.timeout().count(), " ms");
  const TimePoint begin = now();
  std::vector<RankStatus> statuses = fresh_statuses(watch);
  // A status from before this wait began says nothing about why the wait lasts.
  for (RankStatus& status : statuses)
    if (status.silent - (now() - begin) > watch.deadline.timeout())
      for (RankWait& wait : status.waits) wait.blocks = false;
  if (missing.empty()) return {Failure::Kind::kTimeout, -1, concat(call, " did not end", limit)};
  if (statuses.empty())
    return {Failure::Kind::kTimeout, missing[0],
            concat(list_ranks(missing), " did not come to ", call, limit,
                   ": the job's store does not answer (is this host cut off?)")};
  statuses.push_back(own_status(membership, missing));
  std::ranges::sort(statuses, {}, &RankStatus::rank);
  const int local = int(std::ranges::find(statuses, membership.rank(), &RankStatus::rank) - statuses.begin());
  const WaitScope* const in_call = WaitScope::current_call();
  const Blamed blamed = blame_for(statuses, local, in_call ? in_call->wait().call : CallId(), call, limit);
  if (blamed.text.empty())
    return {Failure::Kind::kTimeout, -1,
            concat(call, " did not end", limit, ": ", list_ranks(missing), " did not answer in it")};
  return {Failure::Kind::kTimeout, blamed.rank, blamed.text};
}

}  // namespace

void throw_wait(const char* op, WaitResult outcome, const Watch& watch, const std::vector<int>& missing) {
  if (outcome == WaitResult::kFailed) throw_failure(op, watch.membership->failure());
  throw_failure(op, watch.membership->report(timeout_failure(op, watch, missing)));
}

void throw_left(const char* op, const Watch& watch, int rank) {
  const std::string text = concat("rank ", rank, " has left the job, and rank ", watch.membership->rank(),
                                  " waits for it in ", watch.membership->call_text(op));
  throw_failure(op, watch.membership->report({Failure::Kind::kLeft, rank, text}));
}

}  // namespace gradus::dist::internal
