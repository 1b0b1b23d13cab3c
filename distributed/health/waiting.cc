// Errors of waits for other ranks. On a timeout, waits for statuses that are newer than the timeout, and
// finds the ranks at fault from them (blame.h). Runs on the waiting thread.
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
std::vector<RankStatus> fresh_statuses(const WaitLimits& limits) {
  const TimePoint begin = now();
  for (;;) {
    std::vector<RankStatus> statuses = limits.membership->statuses();
    const Milliseconds since = std::chrono::duration_cast<Milliseconds>(now() - begin);
    const bool all_fresh = std::ranges::all_of(statuses, [&](const RankStatus& s) {
      return s.has_left || s.silent <= since || s.silent >= kHeartbeatTimeout;
    });
    if (all_fresh || since >= kFreshLimit || limits.membership->failed()) return statuses;
    std::this_thread::sleep_for(kLookAgain);
  }
}

// Returns the failure of a timeout that `text` describes. Adds the ranks that have sent no heartbeat since `begin`.
Failure with_stopped_ranks(std::string text, const std::vector<RankStatus>& statuses, TimePoint begin) {
  const Milliseconds since = std::chrono::duration_cast<Milliseconds>(now() - begin);
  Failure failure{Failure::Kind::kTimeout, -1, std::move(text)};
  if (statuses.empty())
    failure.text += ": the job's store does not answer (is its host, the launcher or rank 0, stopped?)";
  for (const RankStatus& status : statuses) {
    if (status.has_left || status.silent <= since) continue;
    failure.text += concat(failure.rank < 0 ? ": rank " : "; rank ", status.rank, ": no sign of life for ",
                           status.silent.count(), " ms (stopped?)");
    if (failure.rank < 0) failure.rank = status.rank;
  }
  return failure;
}

// Returns the failure to report for a wait that timed out. Its rank is the rank at fault, or -1 if no rank
// can be named. `missing`: the ranks in the job that the wait was for; empty: unknown.
Failure timeout_failure(const char* op, const WaitLimits& limits, std::vector<int> missing) {
  Membership& membership = *limits.membership;
  const std::string call = membership.call_text(op);
  const std::string limit = concat(" within ", limits.deadline.timeout().count(), " ms");
  const TimePoint begin = now();
  std::vector<RankStatus> statuses = fresh_statuses(limits);
  // A status from before this wait began says nothing about why the wait lasts.
  for (RankStatus& status : statuses)
    if (status.silent - (now() - begin) > limits.deadline.timeout())
      for (RankWait& wait : status.waits) wait.blocks = false;
  if (missing.empty()) return with_stopped_ranks(concat(call, " did not end", limit), statuses, begin);
  if (statuses.empty())
    return {Failure::Kind::kTimeout, missing[0],
            concat(list_ranks(missing), " did not come to ", call, limit,
                   ": the job's store does not answer (is this host cut off?)")};
  statuses.push_back(own_status(membership, missing));
  std::ranges::sort(statuses, {}, &RankStatus::rank);
  const int local = int(std::ranges::find(statuses, membership.rank(), &RankStatus::rank) - statuses.begin());
  const WaitScope* const in_call = WaitScope::current_call();
  const RanksAtFault culprits =
      find_ranks_at_fault(statuses, local, in_call ? in_call->wait().call : CallId(), call, limit);
  if (culprits.text.empty())
    return {Failure::Kind::kTimeout, -1,
            concat(call, " did not end", limit, ": ", list_ranks(missing), " did not answer in it")};
  return {Failure::Kind::kTimeout, culprits.rank, culprits.text};
}

}  // namespace

Failure queued_call_timeout(const std::string& call, const WaitLimits& limits) {
  const TimePoint begin = now();
  const std::vector<RankStatus> statuses = fresh_statuses(limits);
  return with_stopped_ranks(
      concat(call, " is queued on the GPUs of all members, and was not done on rank ",
             limits.membership->rank(), "'s within ", limits.deadline.timeout().count(), " ms"),
      statuses, begin);
}

void throw_wait(const char* op, WaitResult result, const WaitLimits& limits,
                const std::vector<int>& missing) {
  if (result == WaitResult::kFailed) throw_failure(op, limits.membership->failure());
  throw_failure(op, limits.membership->report(timeout_failure(op, limits, missing)));
}

void throw_left(const char* op, const WaitLimits& limits, int rank) {
  const std::string text = concat("rank ", rank, " has left the job, and rank ", limits.membership->rank(),
                                  " waits for it in ", limits.membership->call_text(op));
  throw_failure(op, limits.membership->report({Failure::Kind::kLeft, rank, text}));
}

}  // namespace gradus::dist::internal
