// BackwardNote: the record that each rank sends at the start of a backward. Consensus: the decision that all
// ranks derive from all notes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gradus/distributed/group/group.h"
#include "gradus/distributed/health/membership.h"

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
  int64_t number = 0;    // number of the backward, counting those in no_sync unless uneven_no_sync is set
  int64_t plan = 0;      // fingerprint of the attached tensors and the options
  int64_t attached = 0;  // fingerprint of the tensors attached to the backward's manager
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
std::optional<BackwardNote> parse(const std::vector<int64_t>& text);

// Returns the first contradiction between the notes, or nullopt. `received` has nullopt for a malformed note,
// `ranks` the members' ranks in the job. `difference(i, j)` returns the text of the difference between the
// plans of members i and j. `difference` may be collective: either all members call it or none.
std::optional<Failure> find_mismatch(const std::vector<std::optional<BackwardNote>>& received,
                                     const std::vector<int>& ranks,
                                     const std::function<std::string(size_t, size_t)>& difference);

// The decision of all members about a backward, derived from consistent notes.
struct Consensus {
  explicit Consensus(const BackwardNotes& notes);

  bool canceled;           // some rank's recording ended without a backward
  bool diverged;           // the parameters are not the same on all ranks
  int joined, active;      // indices of the first member without data and of the first with data; -1: none
  int divisor;             // divisor of a mean: number of contributing members
  std::vector<bool> used;  // per tensor: reached by some rank; all false if the step is canceled or an error

  int root() const { return std::max(active, 0); }  // index of the member that broadcasts its buffers
  // Errors, the same on all members: PeerError with throw_on_early_termination if some members have joined;
  // StateError if some have joined while an enclosing recording is open on the active members.
  void check_joined(const BackwardNotes& notes, const std::vector<int>& ranks) const;
};

}  // namespace gradus::dist::internal
