// RankStatus: what a rank does and for which ranks it waits, as far as other ranks know. Ranks send their status
// in heartbeats. A status becomes text only in errors.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "gradus/distributed/base/deadline.h"

namespace gradus::dist {

// A set of ranks, stored as runs. Groups consist of few runs, however many ranks they have.
class RankSet {
 public:
  RankSet() = default;
  explicit RankSet(std::vector<int> ranks);  // in any order

  bool empty() const { return runs_.empty(); }
  bool contains(int rank) const;
  std::vector<int> ranks() const;
  // Ranks first, first + step, ..., last.
  struct Run {
    int first, last, step;
    auto operator<=>(const Run&) const = default;
  };
  const std::vector<Run>& runs() const { return runs_; }
  // Takes runs from outside. Leaves out malformed runs and runs with ranks outside of the world.
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

// Calls that are counted together.
struct CallSeries {
  enum class Kind : uint8_t {
    kNone,
    kCollective,  // the collectives of a group
    kBarrier,     // the group_barriers of a group
    kMessage,     // the messages from rank `first` to rank `group`
  };
  Kind kind = Kind::kNone;
  uint32_t group = 0;
  int first = -1;  // the group's first member. Groups without a common member may have the same number

  auto operator<=>(const CallSeries&) const = default;
};

// Identifies a call: all members of its group use the same id.
struct CallId {
  CallSeries series = {};
  uint64_t sequence = 0;

  bool defined() const { return series.kind != CallSeries::Kind::kNone; }
  auto operator<=>(const CallId&) const = default;
};

// A call that a rank is in, or another wait of the rank.
struct RankWait {
  CallId call = {};    // undefined: a wait outside of any call. Ranks in one call do not wait for each other
  RankSet ranks = {};  // the ranks that it waits for. Empty: all have arrived
  bool any = false;    // one of `ranks` is enough
  bool blocks = true;  // false: a posted call while the rank's program continues
};

struct RankStatus {
  int rank = 0;
  bool has_left = false;
  Milliseconds silent{0};  // since its last sign of life
  Activity activity = Activity::kUnknown;
  // kInCall: the call, "all_reduce #12 of group 'world'". kOutside and kAfterTimeout: the last call. For errors.
  std::string call = {};
  std::vector<std::string> posted = {};  // the calls that run on queues while the program is outside
  std::vector<RankWait> waits = {};      // the program continues if none of them blocks

  // Not 0: the rank is stuck. All its threads that could make a call wait in the calls of `waits` for
  // other members to arrive. While the number stays the same, none of these threads has moved. Note
  // [Deadlocks] in deadlock.h.
  uint64_t stuck = 0;
  std::map<CallSeries, uint64_t> arrived = {};  // per series: the last call at which it has arrived
  std::vector<int> threads = {};                // this process's threads that wait so; not sent to others
};

// Returns "in all_reduce #12 of group 'world'", "outside of any collective, after ..."; "" for kUnknown.
std::string activity_text(const RankStatus& status);

}  // namespace gradus::dist
