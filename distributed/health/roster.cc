// Roster: which ranks of a job have joined, left or failed, as the store's server knows it. A death is only
// suspected for kLauncherGracePeriod, since the launcher may still report its cause; other failures count at
// once, and the first one wins. A deadlock that heartbeats indicate is confirmed by a query to its ranks.
#include "gradus/distributed/health/roster.h"

#include <algorithm>

#include "gradus/distributed/health/blame.h"
#include "gradus/distributed/health/deadlock.h"

namespace gradus::dist::internal {
namespace {

// The pause between two checks, since a check takes a while with many ranks; and the time limit of a query.
constexpr Milliseconds kCheckPause{100}, kAnswerLimit{1'000};  // of check_for_deadlock

// Returns the failure for a rank that ended without leaving: its exit handlers did not run.
Failure ended_early(int rank) {
  return {.kind = Failure::Kind::kDied,
          .rank = rank,
          .text = concat("rank ", rank, " exited with code 0 without leaving the job (_exit?)")};
}

}  // namespace

Failure two_jobs_failure(int rank) {
  return {.kind = Failure::Kind::kMismatch,
          .rank = rank,
          .text = concat(
              "two processes came as rank ", rank,
              " at once to one port: the ranks of two jobs cannot be told apart there; give each job a "
              "MASTER_PORT of its own")};
}

std::optional<std::string> Roster::join(int rank, int world_size, TimePoint now) {
  if (ranks_.empty()) {
    ranks_.resize(static_cast<size_t>(world_size));
    started_ = now;
  }
  if (ranks_.size() != static_cast<size_t>(world_size))
    return concat("rank ", rank, " says that the job has ", world_size, " ranks; others said ",
                  ranks_.size());
  Rank& r = ranks_[rank];
  if (r.joined) return concat("rank ", rank, " is announced already: two processes have the same rank");
  if (ended_.contains(rank)) return concat("rank ", rank, " has ended already");
  r = {.joined = true, .last_heartbeat = now, .status = {}};
  if (std::ranges::all_of(ranks_, &Rank::joined)) all_joined_at_ = now;
  return {};
}

bool Roster::is_contended(int rank, TimePoint now) const {
  return is_present(rank) && (!all_joined_at_ || now - *all_joined_at_ < kStartupPeriod);
}

void Roster::heartbeat(int rank, int64_t answers, RankStatus status, TimePoint now) {
  Rank& r = ranks_[rank];
  const uint64_t before = r.status.stuck, stuck = status.stuck;
  r.last_heartbeat = now;
  r.status = std::move(status);
  if (query_ && query_->ranks.contains(rank)) {
    if (stuck != query_->ranks[rank]) {
      query_.reset();  // the rank is not in that wait any more
    } else if (answers == query_->number) {
      query_->ranks.erase(rank);
      if (query_->ranks.empty()) {
        report(query_->failure, now);
        query_.reset();
      }
    }
  }
  if (stuck != 0 && stuck == before) check_for_deadlock(now);
}

// Starts a query to the ranks that, by their last heartbeats, wait for each other in a cycle. One at a time.
void Roster::check_for_deadlock(TimePoint now) {
  if (query_ && now - query_->sent_at > kAnswerLimit) query_.reset();
  if (query_ || failure_ || suspected_ || now < next_check_) return;
  next_check_ = now + kCheckPause;
  std::vector<RankStatus> statuses;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    RankStatus& status = statuses.emplace_back();
    if (ranks_[i].status.stuck != 0) status = ranks_[i].status;
    status.rank = int(i);
    status.has_left = has_left(int(i));
  }
  const std::vector<int> ranks = find_deadlock(statuses);
  if (ranks.empty()) return;
  query_ = {.number = ++last_query_, .sent_at = now, .failure = deadlock_failure(statuses, ranks)};
  for (int rank : ranks) query_->ranks[rank] = ranks_[rank].status.stuck;
  query_is_new_ = true;
}

std::optional<Roster::Query> Roster::take_query() {
  return std::exchange(query_is_new_, false) ? query_ : std::nullopt;
}

void Roster::leave(int rank) { ranks_[rank].has_left = true; }

bool Roster::is_present(int rank) const {
  return size_t(rank) < ranks_.size() && ranks_[rank].joined && !ranks_[rank].has_left;
}

bool Roster::has_left(int rank) const {
  if (size_t(rank) >= ranks_.size()) return ended_.contains(rank);
  return ranks_[rank].has_left || (!ranks_[rank].joined && ended_.contains(rank));
}

void Roster::process_ended(int rank, TimePoint now) {
  ended_[rank] = now + kLauncherGracePeriod;
  if (suspected_ && suspected_->rank == rank && is_present(rank)) confirm_failure(ended_early(rank));
}

void Roster::connection_lost(int rank, std::string_view why, TimePoint now) {
  if (ended_.contains(rank)) return confirm_failure(ended_early(rank));
  suspect({.kind = Failure::Kind::kDied, .rank = rank, .text = concat("rank ", rank, ' ', why)}, now);
}

void Roster::launcher_connection_lost(std::string_view name, std::string_view why, TimePoint now) {
  suspect({.kind = Failure::Kind::kDied, .text = concat("the launcher of ", name, ' ', why)}, now);
}

void Roster::report(const Failure& failure, TimePoint now) {
  if (failure.kind == Failure::Kind::kDied)
    suspect(failure, now);
  else if (!failure_ && !suspected_)
    failure_ = failure;
}

void Roster::suspect(Failure failure, TimePoint now) {
  if (failure_ || suspected_) return;
  suspected_ = std::move(failure);
  suspicion_end_ = now + kLauncherGracePeriod;
}

void Roster::confirm_failure(const Failure& failure) {
  if (!failure_) failure_ = failure;
  suspected_.reset();
}

void Roster::expire(TimePoint now) {
  if (suspected_ && suspicion_end_ <= now) confirm_failure(Failure(*suspected_));
  for (auto& [rank, until] : ended_) {
    if (until > now) continue;
    until = TimePoint::max();
    if (is_present(rank)) confirm_failure(ended_early(rank));
  }
}

std::optional<TimePoint> Roster::next_deadline() const {
  TimePoint next = suspected_ ? suspicion_end_ : TimePoint::max();
  for (const auto& [rank, until] : ended_) next = std::min(next, until);
  return next == TimePoint::max() ? std::nullopt : std::optional(next);
}

std::vector<RankStatus> Roster::statuses(TimePoint now) const {
  std::vector<RankStatus> all;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const Rank& r = ranks_[i];
    const auto silent =
        std::chrono::duration_cast<Milliseconds>(now - (r.joined ? r.last_heartbeat : started_));
    RankStatus& status = all.emplace_back(r.status);
    status.rank = int(i);
    status.has_left = has_left(int(i));
    status.silent = std::max(silent, Milliseconds(0));
  }
  return all;
}

}  // namespace gradus::dist::internal
