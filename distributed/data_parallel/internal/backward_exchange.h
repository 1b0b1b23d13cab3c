// BackwardExchange: ranks exchange notes at the start of a backward, so that all send the same buckets.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gradus/distributed/data_parallel/internal/backward_note.h"
#include "gradus/distributed/group/group_state.h"
#include "gradus/distributed/group/work.h"

namespace gradus::dist::internal {

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
  // Wait, and return what the members sent and what follows from it.
  const BackwardNotes& notes();
  const Consensus& consensus();

 private:
  struct Result {
    BackwardNotes notes;
    std::optional<Consensus> consensus;
  };
  Work work_;
  std::shared_ptr<Result> result_;
};

// Returns every member's numbers. Collective; all members give equally many. For the few cases in which a
// note is not enough.
std::vector<std::vector<int64_t>> exchange_numbers(const Group& group, const std::vector<int64_t>& mine);

}  // namespace gradus::dist::internal
