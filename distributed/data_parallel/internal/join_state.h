// JoinState: a reducer's state for dist::join, in which ranks may run out of data at different times.
#pragma once

#include <optional>

#include "gradus/distributed/data_parallel/allreduce_callback.h"
#include "gradus/distributed/data_parallel/internal/backward_note.h"

namespace gradus::dist::internal {

class JoinState {
 public:
  // Errors: StateError within another join.
  void begin(const JoinOptions& options) {
    if (options_) throw StateError("join", "a callback is within join() already");
    options_ = options;
  }
  void end() noexcept { options_.reset(); }
  bool is_active() const { return options_.has_value(); }

  // Returns the join-related flags of a BackwardNote.
  int64_t flags() const {
    if (!options_) return 0;
    int64_t flags = BackwardNote::kJoining;
    if (!options_->divide_by_initial_world_size) flags |= BackwardNote::kDivideByActive;
    if (options_->throw_on_early_termination) flags |= BackwardNote::kEndEarly;
    return flags;
  }

 private:
  std::optional<JoinOptions> options_;
};

}  // namespace gradus::dist::internal
