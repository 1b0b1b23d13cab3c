#include "gradus/distributed/base/waiting.h"

#include <algorithm>
#include <thread>

#include "gradus/distributed/base/blame.h"

namespace gradus::dist::internal {
namespace {

// Returns "all_reduce #12 of group 'world'" if this thread is in that call, else the plain op.
std::string call_text(const char* op, const Membership& membership) {
  const auto* const call = Membership::InCall::current();
  const std::string doing = call ? "in " + call->text() : membership.doing();
  return doing.starts_with(concat("in ", op)) ? doing.substr(3) : op;
}

// Returns this rank's status, with a wait for the ranks that have not come to this thread's call, or
// else for `missing`.
RankStatus own_status(const Membership& membership, const std::vector<int>& missing) {
  RankStatus own = membership.status();
  if (const auto* const call = Membership::InCall::current()) {
    own.doing = "in " + call->text();
    own.waits.push_back(call->wait());
  }
  if (std::ranges::none_of(own.waits, [](const RankWait& wait) { return wait.holds && !wait.ranks.empty(); }))
    own.waits.push_back({.ranks = RankSet(missing)});
  return own;
}

// Answers must be fresh. A live rank sends a heartbeat twice a second, so this limit is enough.
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

Failure timeout_failure(const char* op, const Watch& watch, std::vector<int> missing) {
  Membership& membership = *watch.membership;
  const std::string call = call_text(op, membership);
  const std::string limit = concat(" within ", watch.deadline.timeout().count(), " ms");
  const TimePoint begin = now();
  std::vector<RankStatus> statuses = fresh_statuses(watch);
  // A status from before this wait began says nothing about why the wait lasts.
  for (RankStatus& status : statuses)
    if (status.silent - (now() - begin) > watch.deadline.timeout())
      for (RankWait& wait : status.waits) wait.holds = false;
  if (missing.empty()) return {Failure::Kind::kTimeout, -1, concat(call, " did not end", limit)};
  if (statuses.empty())
    return {Failure::Kind::kTimeout, missing[0],
            concat(list_ranks(missing), " did not come to ", call, limit,
                   ": the job's store does not answer (is this host cut off?)")};
  statuses.push_back(own_status(membership, missing));
  std::ranges::sort(statuses, {}, &RankStatus::rank);
  const int me = int(std::ranges::find(statuses, membership.rank(), &RankStatus::rank) - statuses.begin());
  const auto* const in_call = Membership::InCall::current();
  const Blamed blamed = blame_for(statuses, me, in_call ? in_call->wait().call : "", call, limit);
  if (blamed.text.empty())
    return {Failure::Kind::kTimeout, -1,
            concat(call, " did not end", limit, ": ", list_ranks(missing), " did not answer in it")};
  return {Failure::Kind::kTimeout, blamed.rank, blamed.text};
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
