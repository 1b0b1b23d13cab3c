// The update rule of dynamic loss scaling (GradScaler), shared by host and devices.
#pragma once

#include <limits>

#include "gradus/tensor/ops/loss_scale.h"
#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::raw {

// Returns the state after an optimizer step. `found_inf`: the step found infinite or NaN gradients, and is
// skipped. `before` is the state at the last backward, `latest` the state after the previous step since that
// backward, or `before` with found_inf = 0 for the first step. The result follows from `before`, so the scale
// changes once per backward, however many optimizers step. A scale that would overflow f32 does not grow.
GRADUS_HD LossScale next_loss_scale(const LossScale& before, const LossScale& latest, bool found_inf,
                                    const LossScaleOptions& o) {
  LossScale now = before;
  now.skipped = latest.skipped + (found_inf ? 1 : 0);
  now.found_inf = found_inf || latest.found_inf != 0 ? 1 : 0;
  now.growth_tracker = before.growth_tracker + 1;
  if (now.found_inf != 0) {
    now.scale = before.scale * o.backoff_factor;
    now.growth_tracker = 0;
  } else if (now.growth_tracker >= o.growth_interval) {
    const double larger = before.scale * o.growth_factor;
    if (larger <= double(std::numeric_limits<float>::max())) now.scale = larger;
    now.growth_tracker = 0;
  }
  return now;
}

}  // namespace gradus::raw
