// Stop: SIGINT or SIGTERM on any rank stops all ranks in the same step.
#pragma once

#include <optional>

#include "gradus/distributed/group/work.h"
#include "gradus/tensor/tensor.h"

namespace gradus::training::internal {

// While a Stop exists, the first SIGINT or SIGTERM is a request to stop; the second one ends the program.
class Stop {
 public:
  Stop();
  ~Stop();
  Stop(const Stop&) = delete;
  Stop& operator=(const Stop&) = delete;

  // Called once per step. With several ranks the answer is that of the step before: the all-reduce overlaps
  // with a step. Collective.
  bool should_stop();

 private:
  Tensor requested_;
  std::optional<dist::Work> all_reduce_;
};

}  // namespace gradus::training::internal
