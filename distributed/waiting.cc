#include "gradus/distributed/waiting.h"

#include <algorithm>

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

bool suspicious(const RankStatus& status, const std::string& call) {
  return status.left || status.silent >= kSilent || status.doing != "in " + call;
}

std::string describe(const RankStatus& status) {
  if (status.left) return "it has left the job";
  if (status.silent >= kSilent)
    return concat("no sign of life for ", status.silent.count(), " ms (stopped?)");
  if (status.doing.empty()) return "nothing is known of it";
  return "it is " + status.doing;
}

// The members of `statuses` that a call waits for. When all of them are in that call they wait as well: then
// it is for another rank, which shows itself by silence at least.
std::vector<RankStatus> find_late(const std::vector<RankStatus>& statuses, const std::vector<int>& missing,
                                  const std::string& call) {
  std::vector<RankStatus> late, waiting, silent;
  for (const RankStatus& status : statuses) {
    const bool awaited = std::ranges::find(missing, status.rank) != missing.end();
    if (awaited) (suspicious(status, call) ? late : waiting).push_back(status);
    if (!awaited && status.silent >= kSilent && !status.left) silent.push_back(status);
  }
  if (!late.empty()) return late;
  return silent.empty() ? waiting : silent;
}

std::string list_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += concat(i == 0 ? "" : ", ", ranks[i]);
  return text;
}

Failure timeout_failure(const char* op, const Watch& watch, std::vector<int> missing) {
  const std::string call = call_text(op, *watch.membership);
  const std::string limit = concat(" within ", watch.deadline.timeout().count(), " ms");
  const std::vector<RankStatus> statuses = watch.membership->statuses();
  const std::vector<RankStatus> late = find_late(statuses, missing, call);
  if (!late.empty()) {
    missing.clear();
    for (const RankStatus& status : late) missing.push_back(status.rank);
  }
  if (missing.empty()) return {Failure::Kind::kTimeout, -1, concat(call, " did not end", limit)};

  std::string text = concat(list_ranks(missing), " did not come to ", call, limit);
  if (statuses.empty()) text += ": the job's store does not answer (is this host cut off?)";
  for (size_t i = 0; i < late.size(); ++i) {
    text += i == 0 ? ": " : "; ";
    if (late.size() > 1) text += concat("rank ", late[i].rank, ": ");
    text += describe(late[i]);
  }
  return {Failure::Kind::kTimeout, missing[0], std::move(text)};
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
