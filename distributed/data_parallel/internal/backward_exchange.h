// BackwardExchange: an all-gather of one BackwardNote per rank at the start of a backward. From the notes all
// ranks derive the same set of buckets to send.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gradus/distributed/data_parallel/internal/backward_note.h"
#include "gradus/distributed/group/group_state.h"
#include "gradus/distributed/group/work.h"

namespace gradus::dist::internal {

// An asynchronous exchange.
class BackwardExchange {
 public:
  // Sends this rank's note, without waiting. `plan` is the text form of the bucket plan (BucketPlan::lines);
  // ranks exchange it for the error message if the plans' fingerprints differ.
  // Errors: notes() throws MismatchError on all ranks, naming a mismatching rank, if the notes contradict
  // each other.
  BackwardExchange(const Group& group, const BackwardNote& local,
                   std::shared_ptr<const std::vector<std::string>> plan);

  bool is_completed() const { return work_.is_completed(); }
  // Wait for the exchange. notes() returns the notes of all members, consensus() the decision derived from
  // them.
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

// All-gathers numbers, in the order of members. Collective and blocking; `local` must have the same size on
// all members. For data that is too rare to be part of every note.
std::vector<std::vector<int64_t>> exchange_numbers(const Group& group, const std::vector<int64_t>& local);

}  // namespace gradus::dist::internal
