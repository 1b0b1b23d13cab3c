// Stop: SIGINT or SIGTERM on any rank stops all ranks in the same step.
#pragma once

#include <optional>

#include "gradus/distributed/group/work.h"
#include "gradus/tensor/tensor.h"
#include "gradus/train/internal/interrupt.h"

namespace gradus::training::internal {

class Stop {
 public:
  Stop() = default;
  ~Stop();

  // Called once per step. With several ranks the answer is that of the step before: the all-reduce overlaps
  // with a step. Collective.
  bool agreed();

 private:
  Interrupt interrupt_;
  Tensor requested_;
  std::optional<dist::Work> all_reduce_;
};

}  // namespace gradus::training::internal
