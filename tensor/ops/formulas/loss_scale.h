// The update rule of dynamic loss scaling (GradScaler), shared by host and devices.
#pragma once

#include <limits>

#include "gradus/tensor/ops/loss_scale.h"
#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::raw {

// Returns the state after a step. `found`: whether the step found infinite gradients. `before` is the state at the
// last backward, `latest` the state after the previous step since this backward, or `before` with found = 0 if
// there is none. So the scale changes once per backward, for any number of steps that follow.
GRADUS_HD LossScale moved(const LossScale& before, const LossScale& latest, bool found,
                          const LossScaleOptions& o) {
  LossScale now = before;
  now.skipped = latest.skipped + (found ? 1 : 0);
  now.found = found || latest.found != 0 ? 1 : 0;
  now.clean = before.clean + 1;
  if (now.found != 0) {
    now.scale = before.scale * o.backoff_factor;
    now.clean = 0;
  } else if (now.clean >= o.growth_interval) {
    const double larger = before.scale * o.growth_factor;
    if (larger <= double(std::numeric_limits<float>::max())) now.scale = larger;
    now.clean = 0;
  }
  return now;
}

}  // namespace gradus::raw
