// Roster: which ranks of the job's current attempt are there, what they do, and the failure that ended it. No
// sockets, no threads; time is what the caller says it is.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gradus/distributed/base/membership.h"

namespace gradus::dist::internal {

// How long a launcher has to say why a rank ended, before "its connection closed" is all there is to say.
inline constexpr Milliseconds kGrace{500};
// How long after ranks have met one more process tells that they may be of two jobs.
inline constexpr Milliseconds kStartsTogether{10'000};

// What all hear when two processes came as one rank.
Failure two_jobs(int rank);

class Roster {
 public:
  // Announces a rank. Returns why not, if so.
  std::optional<std::string> join(int rank, int world_size, TimePoint now);
  // Whether the rank is there, and its job's ranks have not met yet or only now: who comes as the same rank
  // may be as right.
  bool is_contended(int rank, TimePoint now) const;
  // `answers`: the last Question that it knows of.
  void heartbeat(int rank, int64_t answers, std::string_view doing, TimePoint now);
  // Ranks that seem to wait for each other for ever: whether they still do. Note [Deadlocks] in deadlock.h.
  struct Question {
    int64_t number = 0;
    std::map<int, uint64_t> ranks = {};  // RankStatus::stuck of those that have not answered
    TimePoint asked = {};
    Failure failure = {};  // when all have
  };
  // What to ask since the last call.
  std::optional<Question> take_question();
  void leave(int rank);
  // A launcher has seen the rank's process end with exit code 0. One that never joined has left; one that did
  // must have said that it leaves.
  void ended(int rank, TimePoint now);
  bool has_left(int rank) const;
  // The connection of a rank that has not left is gone. `why`: "its connection closed".
  void lost(int rank, std::string_view why, TimePoint now);
  // A launcher's connection is gone.
  void lost_launcher(std::string_view name, std::string_view why, TimePoint now);
  // What a rank says of another's death waits for a launcher's verdict; everything else counts at once.
  void report(const Failure& failure, TimePoint now);
  // A launcher's verdict.
  void decide(const Failure& failure);
  void expire(TimePoint now);
  std::optional<TimePoint> next_deadline() const;

  const std::optional<Failure>& failure() const { return failure_; }
  // Of all ranks, once the first has joined.
  std::vector<RankStatus> statuses(TimePoint now) const;
  void begin_attempt() { *this = Roster(); }

 private:
  struct Rank {
    bool joined = false, left = false;
    TimePoint seen;
    std::string doing;
    uint64_t stuck = 0;
  };
  void suspect(Failure failure, TimePoint now);
  bool is_present(int rank) const;
  void look_for_deadlock(TimePoint now);

  std::vector<Rank> ranks_;
  // Ended in order, and how long their last words may be under way.
  std::map<int, TimePoint> ended_;
  TimePoint started_;
  std::optional<TimePoint> met_;  // when the last rank came
  std::optional<Failure> failure_;
  // A death seen that no launcher has explained yet, and when to believe it.
  std::optional<Failure> suspected_;
  TimePoint believed_at_;
  std::optional<Question> question_;
  int64_t last_question_ = 0;
  bool to_ask_ = false;
  TimePoint next_look_;
};

}  // namespace gradus::dist::internal
