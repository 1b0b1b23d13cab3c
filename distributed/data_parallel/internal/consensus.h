// The agreement of all ranks on one data-parallel backward pass. At its start each rank of the group sends a
// BackwardNote: for which parameters the rank will have gradients, and checksums of its settings. From the
// notes of all ranks each rank derives the same Consensus: which gradients are all-reduced, and by what a
// mean divides. The user is AllReduceCallback (allreduce_callback.h), the counterpart of DDP's Reducer.
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

// What one rank sends about one backward. The attached tensors are the parameters whose gradients the
// callback all-reduces; the bucket plan assigns them to buckets. A recording is the graph of ops that a
// GradManager records for one backward.
struct BackwardNote {
  enum Kind : int64_t {
    kBackward,
    kNone,    // the recording ended without a backward: no rank reduces gradients in this step
    kJoined,  // the rank has no more data, is at the end of join(), and contributes zeros
  };
  enum Flag : int64_t {
    kEnclosingRecording = 1,  // a second recording is open that records this backward (double backward)
    kJoining = 2,             // within join()
    kDivideByActive = 4,      // JoinOptions: !divide_by_initial_world_size
    kEndEarly = 8,            // JoinOptions: throw_on_early_termination
  };
  int64_t kind = kBackward;
  int64_t number = 0;  // number of the backward, counting those in no_sync unless uneven_no_sync is set
  // Checksum of the bucket plan: shapes, dtypes and devices of all attached tensors, and the callback's options.
  int64_t plan_fingerprint = 0;
  // Checksum of the indices of those attached tensors that belong to the GradManager of this backward.
  int64_t manager_fingerprint = 0;
  int64_t flags = 0;          // a sum of Flags
  int64_t checksum = 0;       // checksum of the parameters' values; 0: this backward does not compare them
  std::vector<bool> reached;  // per attached tensor: whether this rank will have a gradient for the tensor
};
// The notes of all members of the group, by rank in the group.
using BackwardNotes = std::vector<BackwardNote>;

// The maximal number of attached tensors. make_plan() throws a ValueError for more; parse() rejects the note.
inline constexpr int64_t kMaxAttachedTensors = 50'000;

// Returns the note as a record of int64 for parse().
std::vector<int64_t> serialize(const BackwardNote& note);
// Returns nullopt if the record is malformed.
std::optional<BackwardNote> parse(const std::vector<int64_t>& record);

// Returns a failure that names a mismatching member if the members do not run the same backward, else nullopt.
// `received` and `ranks` are by rank in the group: the notes, nullopt for a malformed one, and the ranks in the
// job. `difference` returns the text of the difference between the members' plans. `difference` may be a
// collective call: either all members call it or none, because all have the same `received`.
std::optional<Failure> find_mismatch(const std::vector<std::optional<BackwardNote>>& received,
                                     const std::vector<int>& ranks,
                                     const std::function<std::string()>& difference);

// A future of the agreement. The data members have their values once wait() has returned without an error, and do
// not change any more; then any thread may read them.
struct Consensus {
  // Collective over the group: queues the exchange of the notes behind the group's earlier collectives and returns
  // without waiting. `plan` is the text form of the bucket plan (BucketPlan::lines); ranks exchange the text for
  // the error message if their plans' fingerprints differ.
  static std::shared_ptr<Consensus> start(const Group& group, const BackwardNote& local,
                                          std::shared_ptr<const std::vector<std::string>> plan);
  // Sets the data members other than `work` from notes in which find_mismatch() found no mismatch. The exchange
  // that start() queues calls resolve() when the notes of all members have arrived.
  void resolve(BackwardNotes all);
  bool is_completed() const { return work.is_completed(); }
  // Errors: MismatchError on all ranks, naming a mismatching rank, if the notes contradict each other.
  void wait() const { work.wait(); }

  BackwardNotes notes;
  bool canceled = false;  // some rank's recording ended without a backward
  bool diverged = false;  // the checksums of the parameters differ between ranks: the caller throws an error
  // Indices in the group of the first member that has joined (has no more data), and of the first member with
  // data; -1: none.
  int first_joined = -1, first_active = -1;
  int divisor = 1;  // divisor of a mean: number of members, with kDivideByActive of those with data
  // Per attached tensor: whether some rank has reached the tensor, so its gradient is reduced. All false if the
  // step is canceled, parameters have diverged, or check_joined() throws.
  std::vector<bool> reduced;
  Work work;

  // Returns the index of the member whose buffers, such as running means, are broadcast after the backward.
  int root() const { return std::max(first_active, 0); }
  // Throws if this backward must not run while some members have no more data. `ranks` are the members' ranks
  // in the job.
  // Errors, the same on all members: PeerError with throw_on_early_termination if some members have joined;
  // StateError if some have joined while an enclosing recording is open on the active members.
  void check_joined(const std::vector<int>& ranks) const;
};

}  // namespace gradus::dist::internal
