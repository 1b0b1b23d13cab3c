// Roster: which ranks of the job's current attempt are there, what they do, and the failure that ended the
// attempt. It has no sockets and no threads. The caller passes the time.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gradus/distributed/health/membership.h"

namespace gradus::dist::internal {

// How long a launcher has to say why a rank ended. After that, the reason is "its connection closed".
inline constexpr Milliseconds kLauncherGracePeriod{500};
// For this long after all ranks have met, a second process with the same rank means that two
// jobs may have met.
inline constexpr Milliseconds kStartupPeriod{10'000};

// Returns the failure that all ranks get when two processes came as one rank.
Failure two_jobs_failure(int rank);

class Roster {
 public:
  // Announces a rank. Returns nothing on success, else the reason for the refusal.
  std::optional<std::string> join(int rank, int world_size, TimePoint now);
  // Returns whether the rank is there and the job's ranks have not all met, or met less than kStartupPeriod
  // ago. Then another process that comes as this rank may be the right one just as well.
  bool is_contended(int rank, TimePoint now) const;
  // Records a heartbeat of a rank. `answers`: the number of the last Query that the rank has received.
  void heartbeat(int rank, int64_t answers, RankStatus status, TimePoint now);
  // Queries ranks that seem to wait for each other forever whether they still do. Note
  // [Deadlocks] in deadlock.h.
  struct Query {
    int64_t number = 0;
    std::map<int, uint64_t> ranks = {};  // of ranks that have not answered: RankStatus::stuck
    TimePoint sent_at = {};
    Failure failure = {};  // reported when all have answered
  };
  // Returns the query that has come up since the last call, if any.
  std::optional<Query> take_query();
  void leave(int rank);
  // Notes that a launcher has seen the rank's process end with exit code 0. A rank that never joined counts
  // as left. A rank that joined must have called leave.
  void process_ended(int rank, TimePoint now);
  bool has_left(int rank) const;
  // Notes that the connection of a rank that has not left is gone. `why`: "died: its connection closed".
  void connection_lost(int rank, std::string_view why, TimePoint now);
  // Notes that a launcher's connection is gone.
  void launcher_connection_lost(std::string_view name, std::string_view why, TimePoint now);
  // Notes a failure that a rank reports. The death of another rank waits for a launcher's verdict; every
  // other failure counts at once.
  void report(const Failure& failure, TimePoint now);
  // Notes a launcher's verdict, which counts at once.
  void confirm_failure(const Failure& failure);
  void expire(TimePoint now);
  std::optional<TimePoint> next_deadline() const;

  const std::optional<Failure>& failure() const { return failure_; }
  // Returns the statuses of all ranks; nothing before the first rank has joined.
  std::vector<RankStatus> statuses(TimePoint now) const;
  void begin_attempt() { *this = Roster(); }

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
  // Ranks that ended with exit code 0, and until when their kLeave may be under way.
  std::map<int, TimePoint> ended_;
  TimePoint started_;
  std::optional<TimePoint> all_joined_at_;  // when the last rank joined
  std::optional<Failure> failure_;
  // A death that no launcher has explained yet, and when to believe it.
  std::optional<Failure> suspected_;
  TimePoint believed_at_;
  std::optional<Query> query_;
  int64_t last_query_ = 0;
  bool query_is_new_ = false;
  TimePoint next_check_;
};

}  // namespace gradus::dist::internal
