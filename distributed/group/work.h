// Work: a collective or message under way.
#pragma once

#include <optional>

#include "gradus/distributed/base/deadline.h"
#include "gradus/tensor/base/ref.h"

namespace gradus::dist {

namespace internal {
class WorkState;
}

// A handle; copies share the work. It keeps the tensors that it works on alive. A
// default-constructed Work is done.
class Work {
 public:
  Work();
  explicit Work(Ref<internal::WorkState> state);
  ~Work();
  Work(const Work&);
  Work& operator=(const Work&);

  // Blocks until it is done. The limit is the started call's own, or `timeout` from now if that is sooner.
  // Errors: what went wrong (DistributedError), in every call of wait; TimeoutError if `timeout` is over
  // first (the work goes on and can be waited for again).
  void wait(std::optional<Milliseconds> timeout = {}) const;
  // Returns whether it is done or has failed; never blocks.
  bool is_completed() const;
  // Returns the sender's rank of a finished receive, -1 otherwise.
  int source_rank() const;

 private:
  Ref<internal::WorkState> state_;
};

}  // namespace gradus::dist
