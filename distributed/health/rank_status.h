// RankStatus: what a rank does and for which ranks it waits. Ranks send their status to the membership
// service in heartbeats; timeouts and deadlock detection use it.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "gradus/distributed/base/deadline.h"

namespace gradus::dist {

// A set of ranks, stored as arithmetic sequences (runs), since most groups are a few runs of ranks.
class RankSet {
 public:
  RankSet() = default;
  explicit RankSet(std::vector<int> ranks);  // in any order

  bool empty() const { return runs_.empty(); }
  bool contains(int rank) const;
  std::vector<int> ranks() const;  // in the order of runs()
  // Ranks first, first + step, ..., last.
  struct Run {
    int first, last, step;
    auto operator<=>(const Run&) const = default;
  };
  const std::vector<Run>& runs() const { return runs_; }
  // Makes a set of runs that another process sent. Omits runs that are malformed, overlap or are not in
  // order, or have ranks outside of [0, world_size).
  static RankSet from_runs(std::span<const Run> runs, int world_size);

  auto operator<=>(const RankSet&) const = default;

 private:
  std::vector<Run> runs_;
};

enum class Activity : uint8_t {
  kUnknown,
  kNotJoined,     // has not joined the job yet
  kOutside,       // outside of any call
  kInCall,        // in a collective, a send, a receive, or a wait for a key of the store
  kAfterTimeout,  // its last call timed out
};

// A sequence of calls that are numbered in the order in which a rank makes them.
struct CallSeries {
  enum class Kind : uint8_t {
    kNone,
    kCollective,  // the collectives of a group
    kBarrier,     // the group_barriers of a group
    kMessage,     // the messages from rank `first` to rank `group`
  };
  Kind kind = Kind::kNone;
  uint32_t group = 0;  // the group's id. Groups without a common member may have the same id
  int first = -1;      // the group's first member

  auto operator<=>(const CallSeries&) const = default;
};

// Identifies a call in the job: all members of its group compute the same id.
struct CallId {
  CallSeries series = {};
  uint64_t sequence = 0;  // the call's number in the series

  bool defined() const { return series.kind != CallSeries::Kind::kNone; }
  auto operator<=>(const CallId&) const = default;
};

// A wait of a rank for other ranks. `ranks` of a wait in a call are all members, also those that have arrived
// (their statuses have the call too), until all have arrived; then `ranks` is empty.
struct RankWait {
  CallId call = {};    // the call that the rank is in; undefined: a wait outside of any call
  RankSet ranks = {};  // the awaited ranks
  bool any = false;    // true: one of `ranks` suffices
  bool blocks = true;  // false: an asynchronous call, while the rank's program continues
};

struct RankStatus {
  int rank = 0;
  bool has_left = false;
  Milliseconds silent{0};  // time since the rank's last heartbeat
  Activity activity = Activity::kUnknown;
  // For errors. kInCall: the call, "all_reduce #12 of group 'world'". Else: the last call.
  std::string call = {};
  std::vector<std::string> posted = {};  // asynchronous calls in progress, if activity is kOutside
  std::vector<RankWait> waits = {};      // the program continues if none of them blocks
  // Not 0: the rank is stuck, that is, all its threads that could make a call wait in the calls of `waits`
  // for other members to arrive. Equal numbers: none has run in between. Note [Deadlocks] in deadlock.h.
  uint64_t stuck = 0;
  std::map<CallSeries, uint64_t> arrived = {};  // if stuck: the last call in each series that it has entered
  std::vector<int> threads = {};  // ids of these threads in this process; not sent to other ranks
};

// Returns "in all_reduce #12 of group 'world'" or "outside of any collective, after ..."; "" for kUnknown.
std::string activity_text(const RankStatus& status);

}  // namespace gradus::dist
