// Consensus: what all ranks agree on about a backward, such as the parameters that got gradients. Each rank
// sends a BackwardNote at the start of a backward, from which all ranks derive the same set of buckets to send.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gradus/distributed/group/group_state.h"
#include "gradus/distributed/group/work.h"

namespace gradus::dist::internal {

struct BackwardNote {
  enum Kind : int64_t {
    kBackward,
    kNone,    // the recording ended without a backward: the step is canceled on all ranks
    kJoined,  // the rank has no more data (join) and contributes zeros
  };
  enum Flag : int64_t {
    kEnclosingRecording = 1,  // an enclosing recording is open (double backward)
    kJoining = 2,             // within join()
    kDivideByActive = 4,      // !divide_by_initial_world_size
    kEndEarly = 8,            // throw_on_early_termination
  };
  int64_t kind = kBackward;
  int64_t number = 0;  // number of the backward, counting those in no_sync unless uneven_no_sync is set
  int64_t plan_fingerprint = 0;  // fingerprint of the attached tensors and the options
  int64_t attached = 0;          // fingerprint of the tensors attached to the backward's manager
  int64_t flags = 0;
  int64_t checksum = 0;       // checksum of the parameters; 0: parameters are not compared in this backward
  std::vector<bool> reached;  // per attached tensor: whether this rank has a gradient for it
};
// The notes of all members, by rank in the group.
using BackwardNotes = std::vector<BackwardNote>;

// The maximal number of tensors in a note.
inline constexpr int64_t kMaxReached = 50'000;

std::vector<int64_t> serialize(const BackwardNote& note);
// Returns nullopt if the record is malformed.
std::optional<BackwardNote> parse(const std::vector<int64_t>& record);

// Returns the first contradiction between the notes, or nullopt. `received` has nullopt for a malformed note,
// `ranks` the members' ranks in the job. `difference` returns the text of the difference between the members'
// plans. `difference` may be collective: either all members call it or none.
std::optional<Failure> find_mismatch(const std::vector<std::optional<BackwardNote>>& received,
                                     const std::vector<int>& ranks,
                                     const std::function<std::string()>& difference);

// A future: the members below wait() have their values once wait() has returned.
struct Consensus {
  // Sends this rank's note, without waiting. `plan` is the text form of the bucket plan (BucketPlan::lines);
  // ranks exchange it for the error message if the plans' fingerprints differ.
  static std::shared_ptr<Consensus> start(const Group& group, const BackwardNote& local,
                                          std::shared_ptr<const std::vector<std::string>> plan);
  // Derives the consensus from consistent notes.
  void resolve(BackwardNotes all);
  bool is_completed() const { return work.is_completed(); }
  // Errors: MismatchError on all ranks, naming a mismatching rank, if the notes contradict each other.
  void wait() const { work.wait(); }

  BackwardNotes notes;
  bool canceled = false;  // some rank's recording ended without a backward
  bool diverged = false;  // the parameters are not the same on all ranks
  int joined = -1,
      active = -1;         // indices of the first member without data and of the first with data; -1: none
  int divisor = 1;         // divisor of a mean: number of contributing members
  std::vector<bool> used;  // per tensor: reached by some rank; all false if the step is canceled or an error
  Work work;

  int root() const { return std::max(active, 0); }  // index of the member that broadcasts its buffers
  // Errors, the same on all members: PeerError with throw_on_early_termination if some members have joined;
  // StateError if some have joined while an enclosing recording is open on the active members.
  void check_joined(const std::vector<int>& ranks) const;
};

}  // namespace gradus::dist::internal
