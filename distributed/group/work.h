// Work: a collective or message under way.
#pragma once

#include <optional>
#include <utility>

#include "gradus/distributed/base/deadline.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/base/ref.h"
#include "gradus/tensor/runtime/fork.h"

namespace gradus::dist {

namespace internal {

// The implementation behind a Work.
class WorkState : public Counted {
 public:
  // Errors: StateError in a child made by fork(), since the threads that do the work are its parent's.
  void check_process() const {
    if (process_ != gradus::internal::fork_count())
      throw StateError(
          "wait", "this process was made by fork(); its parent has the work under way, and waits for it");
  }
  // As in Work. Several threads may call these.
  virtual void wait(std::optional<Milliseconds> timeout) = 0;
  virtual bool is_completed() = 0;
  virtual int source_rank() { return -1; }

 private:
  const int process_ = gradus::internal::fork_count();
};

}  // namespace internal

// A handle; copies share the work. It keeps the tensors that it works on alive. A
// default-constructed Work is done.
class Work {
 public:
  Work() = default;
  explicit Work(Ref<internal::WorkState> state) : state_(std::move(state)) {}

  // Blocks until it is done. The limit is the started call's own, or `timeout` from now if that is sooner.
  // Errors: what went wrong (DistributedError), in every call of wait; TimeoutError if `timeout` is over
  // first (the work goes on and can be waited for again).
  void wait(std::optional<Milliseconds> timeout = {}) const;
  // Returns whether it is done or has failed; never blocks.
  bool is_completed() const;
  // Returns the sender's rank of a finished receive, -1 otherwise.
  int source_rank() const { return state_ ? state_->source_rank() : -1; }

 private:
  Ref<internal::WorkState> state_;
};

}  // namespace gradus::dist
