// Work: a collective or message under way.
#pragma once

#include <optional>

#include "gradus/distributed/base/deadline.h"
#include "gradus/tensor/base/ref.h"

namespace gradus::dist {

namespace internal {
class WorkState;
}

// A handle; copies share. Keeps the tensors that it works on alive. Default-constructed: done.
class Work {
 public:
  Work();
  explicit Work(Ref<internal::WorkState> state);
  ~Work();
  Work(const Work&);
  Work& operator=(const Work&);

  // Blocks until it is done. The limit is that of the call that started it, or `timeout` from
  // now, if shorter.
  // Errors: what went wrong (DistributedError), each time it is called; TimeoutError when `timeout` is over
  // first, which ends nothing: it can be waited for again.
  void wait(std::optional<Milliseconds> timeout = {}) const;
  // Whether it is done, well or badly; never blocks.
  bool is_completed() const;
  // Of a finished receive: the rank that sent. -1 otherwise.
  int source_rank() const;

 private:
  Ref<internal::WorkState> state_;
};

}  // namespace gradus::dist
