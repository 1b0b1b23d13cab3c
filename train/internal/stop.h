// Stop: Ctrl-C or SIGTERM on any rank, as a question that all ranks answer alike.
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

  // Collective, once per step: true on all ranks in the same step, when some rank was asked to stop before
  // the step before (of a single rank: before this one). What ranks tell each other travels during the step.
  bool agreed();

 private:
  Interrupt interrupt_;
  Tensor asked_;
  std::optional<dist::Work> under_way_;
};

}  // namespace gradus::training::internal
