// What ranks tell each other at the start of a backward, so that all send the same buckets.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gradus/distributed/group/group_state.h"
#include "gradus/distributed/group/work.h"

namespace gradus::dist::internal {

struct BackwardNote {
  enum Kind : int64_t {
    kBackward,
    kNone,    // a recording ended without a backward: no rank's backward counts
    kJoined,  // no more data: takes part with zeros
  };
  enum Flag : int64_t {
    kOuter = 1,    // an outer recording sees the backward
    kJoining = 2,  // within join()
    kDivideByActive = 4,
    kEndEarly = 8,  // throw_on_early_termination
  };
  int64_t kind = kBackward;
  int64_t number = 0;    // of the backward, counting those in no_sync
  int64_t plan = 0;      // fingerprints: of what was attached, with the options,
  int64_t attached = 0;  // and of the tensors of the backward's manager
  int64_t flags = 0;
  int64_t checksum = 0;  // of the parameters; 0: not compared this time
  std::vector<bool> reached;
};

// The maximal number of tensors in a note.
inline constexpr int64_t kMaxReached = 50'000;

// Notes under way.
class BackwardExchange {
 public:
  // Sends this rank's note, without waiting. `plan` has the lines that the note's fingerprint is made from.
  // Ranks compare the lines if the fingerprints differ.
  // Errors: in notes(), MismatchError on all ranks if the members' notes do not fit; it names
  // one that differs.
  BackwardExchange(const Group& group, const BackwardNote& mine,
                   std::shared_ptr<const std::vector<std::string>> plan);

  bool has_come() const { return work_.is_completed(); }
  // Waits, and returns all members' notes in the group's order.
  const std::vector<BackwardNote>& notes();

 private:
  Work work_;
  std::shared_ptr<std::vector<BackwardNote>> notes_;
};

// Returns every member's numbers. Collective; all members give equally many. For the few cases in which a
// note is not enough.
std::vector<std::vector<int64_t>> exchange_numbers(const Group& group, const std::vector<int64_t>& mine);

}  // namespace gradus::dist::internal
