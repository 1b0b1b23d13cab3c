// Roster: the state of the membership service in the store's server: which ranks have joined, left or died in
// the job's current attempt (its run until the next restart), their statuses, and the failure that ended the
// attempt. Not thread-safe. The caller passes the time and calls expire() at next_deadline().
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gradus/distributed/health/membership.h"

namespace gradus::dist::internal {

// After a rank's connection has closed, the time in which a launcher may report why the process ended. Then
// the reason is "its connection closed".
inline constexpr Milliseconds kLauncherGracePeriod{500};
// Until all ranks have joined and for this long afterward, a second process that joins with a rank of the job
// may be of another job that uses the same port.
inline constexpr Milliseconds kStartupPeriod{10'000};

// Returns the failure for two processes that join as `rank`: the ranks of two jobs cannot be told apart.
Failure two_jobs_failure(int rank);

// The first failure of an attempt counts. While a death is suspected (kLauncherGracePeriod), only a
// launcher's report or the end of the suspicion makes it the failure. In all functions, `rank` is a rank in
// the job, not negative; in join() below world_size, in heartbeat() and leave() one that has joined (not
// checked).
class Roster {
 public:
  // Adds a rank. Returns nullopt on success, else the reason for the refusal.
  std::optional<std::string> join(int rank, int world_size, TimePoint now);
  // Returns whether the rank is present and kStartupPeriod has not passed: then another process that joins as
  // this rank may be the right one as well.
  bool is_contended(int rank, TimePoint now) const;
  // Stores the status in a rank's heartbeat, and may begin a Query or fail by deadlock. `answers`: the number
  // of the last Query that the rank had received before it computed `status`.
  void heartbeat(int rank, int64_t answers, RankStatus status, TimePoint now);
  // A request to ranks that, by their last heartbeats, wait for each other forever, for a new heartbeat. If
  // all still have the same RankStatus::stuck, the deadlock is certain (Note [Deadlocks] in deadlock.h).
  struct Query {
    int64_t number = 0;
    std::map<int, uint64_t> ranks = {};  // ranks that have not answered, with their RankStatus::stuck
    TimePoint sent_at = {};
    Failure failure = {};  // reported when all have answered
  };
  // Returns the query to send, once per query; nullopt if there is no new one.
  std::optional<Query> take_query();
  void leave(int rank);
  // A launcher reports that the rank's process has ended with exit code 0. A rank that never joined counts as
  // left. For a rank that joined and has not called leave() within kLauncherGracePeriod, this is a failure.
  void process_ended(int rank, TimePoint now);
  bool has_left(int rank) const;
  // The connection of a rank that has not left has closed. `why`: "died: its connection closed".
  void connection_lost(int rank, std::string_view why, TimePoint now);
  // A launcher's connection has closed: suspected, as a rank's death.
  void launcher_connection_lost(std::string_view name, std::string_view why, TimePoint now);
  // A rank reports a failure. kDied is only suspected, since a launcher may know the reason; others count at
  // once, unless a death is suspected already.
  void report(const Failure& failure, TimePoint now);
  // A launcher reports why a rank ended, which counts at once.
  void confirm_failure(const Failure& failure);
  // Makes a suspected death, or an end without leave(), the failure once its grace period has passed.
  void expire(TimePoint now);
  std::optional<TimePoint> next_deadline() const;  // nullopt: expire() has nothing to do

  const std::optional<Failure>& failure() const { return failure_; }
  // Returns the statuses of all ranks; empty before the first rank has joined.
  std::vector<RankStatus> statuses(TimePoint now) const;
  void begin_attempt() { *this = Roster(); }  // forgets all ranks and the failure

 private:
  struct Rank {
    bool joined = false, has_left = false;
    TimePoint last_heartbeat;
    RankStatus status = {.activity = Activity::kNotJoined};  // of the last heartbeat
  };
  void suspect(Failure failure, TimePoint now);
  bool is_present(int rank) const;
  void check_for_deadlock(TimePoint now);

  std::vector<Rank> ranks_;
  // Ranks whose process ended with exit code 0, and until when their leave message may still be in flight.
  std::map<int, TimePoint> ended_;
  TimePoint started_;                       // when the first rank joined
  std::optional<TimePoint> all_joined_at_;  // when the last rank joined
  std::optional<Failure> failure_;
  std::optional<Failure> suspected_;  // a death for which a launcher may still report the reason
  TimePoint suspicion_end_;           // when suspected_ becomes failure_
  std::optional<Query> query_;
  int64_t last_query_ = 0;
  bool query_is_new_ = false;
  TimePoint next_check_;
};

}  // namespace gradus::dist::internal
