// Stop: SIGINT or SIGTERM on any rank stops all ranks in the same step.
#pragma once

#include <optional>

#include "gradus/distributed/group/work.h"
#include "gradus/tensor/tensor.h"

namespace gradus::training::internal {

// While a Stop exists, the first SIGINT or SIGTERM is a request to stop; the second one ends the program. The
// handlers and their flag belong to the process. The destructor restores the default handlers.
class Stop {
 public:
  Stop();
  ~Stop();
  Stop(const Stop&) = delete;
  Stop& operator=(const Stop&) = delete;

  // Returns whether a rank has requested to stop, the same on all ranks. To be called once per step. With
  // several ranks, requests count from the next call on: their all-reduce overlaps with a step. Collective.
  bool should_stop();

 private:
  Tensor requested_;  // i32[1]: 1 if this rank, after the all-reduce any rank, has requested to stop
  std::optional<dist::Work> all_reduce_;
};

}  // namespace gradus::training::internal
