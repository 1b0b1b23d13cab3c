// What a rank tells the others at the start of a backward, and what follows from the notes of all.
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
  int64_t number = 0;    // of the backward, counting those in no_sync unless uneven_no_sync is set
  int64_t plan = 0;      // fingerprints: of what was attached, with the options,
  int64_t attached = 0;  // and of the tensors of the backward's manager
  int64_t flags = 0;
  int64_t checksum = 0;  // of the parameters; 0: not compared this time
  std::vector<bool> reached;
};
// The notes of all members, in the group's order.
using BackwardNotes = std::vector<BackwardNote>;

// The maximal number of tensors in a note.
inline constexpr int64_t kMaxReached = 50'000;

std::vector<int64_t> write(const BackwardNote& note);
// Returns nothing if the text is malformed.
std::optional<BackwardNote> read(const std::vector<int64_t>& text);

// Returns what does not fit, or nothing. `difference` returns how the plans of two members differ. Either all
// members call it or none does.
std::optional<Failure> find_mismatch(const std::vector<std::optional<BackwardNote>>& given,
                                     const std::vector<int>& ranks,
                                     const std::function<std::string(size_t, size_t)>& difference);

// What all members do in a backward. It follows from notes that fit.
struct Consensus {
  explicit Consensus(const BackwardNotes& notes);

  bool canceled;           // some rank's recording ended without a backward
  bool diverged;           // the parameters are not the same on all ranks
  int joined, active;      // indices of the first member without data and of the first with data; -1: none
  int divisor;             // what a sum is divided by to be a mean
  std::vector<bool> used;  // reached by some rank; none if no buckets follow

  int root() const { return std::max(active, 0); }  // index of the member whose buffers count
  // Errors: PeerError and StateError when members with data cannot go on without those that joined. All
  // members throw the same.
  void check_joined(const BackwardNotes& notes, const std::vector<int>& ranks) const;
};

}  // namespace gradus::dist::internal
