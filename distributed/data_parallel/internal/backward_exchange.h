// What ranks tell each other at the begin of a backward, so that all send the same.
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
    kNone,    // a recording ended without one: nobody's counts
    kJoined,  // no more data: takes part with zeros
  };
  enum Flag : int64_t {
    kOuter = 1,    // an outer recording sees the backward
    kJoining = 2,  // within join()
    kDivideByActive = 4,
    kEndEarly = 8,  // throw_on_early_termination
  };
  int64_t kind = kBackward;
  int64_t number = 0;    // of the backward, those in no_sync included
  int64_t plan = 0;      // fingerprints: of what was attached, with the options,
  int64_t attached = 0;  // and of the tensors of the manager whose backward it is
  int64_t flags = 0;
  int64_t checksum = 0;  // of the parameters; 0: not compared this time
  std::vector<bool> reached;
};

// The most tensors that a note has room for.
inline constexpr int64_t kMaxReached = 50'000;

// Notes on their way.
class BackwardExchange {
 public:
  // Gives this rank's note, without waiting. All members' notes must fit: else it is a MismatchError, which
  // names one that differs, on all of them. `plan` are the lines of which a note has the fingerprint: what
  // ranks compare when these differ.
  BackwardExchange(const Group& group, const BackwardNote& mine,
                   std::shared_ptr<const std::vector<std::string>> plan);

  bool has_come() const { return work_.is_completed(); }
  // Waits. Returns all members' notes, in the group's order.
  const std::vector<BackwardNote>& notes();

 private:
  Work work_;
  std::shared_ptr<std::vector<BackwardNote>> notes_;
};

// Collective: returns every member's numbers, of which all give equally many. For the few times when a note
// was not enough.
std::vector<std::vector<int64_t>> exchange_numbers(const Group& group, const std::vector<int64_t>& mine);

}  // namespace gradus::dist::internal
