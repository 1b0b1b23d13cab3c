// WorkState: the implementation behind a Work.
#pragma once

#include <optional>

#include "gradus/distributed/base/deadline.h"
#include "gradus/tensor/base/error.h"
#include "gradus/tensor/base/ref.h"
#include "gradus/tensor/runtime/fork.h"

namespace gradus::dist::internal {

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

}  // namespace gradus::dist::internal
