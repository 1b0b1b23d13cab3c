// Work: the handle of an asynchronous collective, send or receive (torch.distributed.Work).
#pragma once

#include <optional>
#include <utility>

#include "gradus/distributed/base/deadline.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/base/ref.h"
#include "gradus/tensor/runtime/fork.h"

namespace gradus::dist {

namespace internal {

// The operation behind a Work. Thread-safe. Functions as in Work.
class WorkState : public Counted {
 public:
  // Errors: StateError in a child made by fork(): the threads that execute the operation are the parent's.
  void check_process() const {
    if (process_ != gradus::internal::fork_count())
      throw StateError(
          "wait", "this process was made by fork(); its parent has the work under way, and waits for it");
  }
  virtual void wait(std::optional<Milliseconds> timeout) = 0;
  virtual bool is_completed() = 0;
  virtual int source_rank() { return -1; }

 private:
  const int process_ = gradus::internal::fork_count();
};

}  // namespace internal

// Copies share the operation, which keeps its tensors alive; destroying a Work neither waits nor cancels. A
// default-constructed Work is complete. Thread-safe.
class Work {
 public:
  Work() = default;
  explicit Work(Ref<internal::WorkState> state) : state_(std::move(state)) {}

  // Blocks until the operation is complete, at most until the deadline of the call that started it, or
  // `timeout` from now if that is sooner.
  // Errors: the operation's DistributedError, in every call of wait; TimeoutError after `timeout` (the
  // operation continues, and wait may be called again); StateError in a child made by fork().
  void wait(std::optional<Milliseconds> timeout = {}) const;
  // Returns whether the operation is complete or has failed, without blocking.
  bool is_completed() const;
  // Returns the sender's rank in the job for a completed receive, -1 otherwise.
  int source_rank() const { return state_ ? state_->source_rank() : -1; }

 private:
  Ref<internal::WorkState> state_;
};

}  // namespace gradus::dist
