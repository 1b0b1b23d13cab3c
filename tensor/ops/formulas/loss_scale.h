// How a GradScaler's scale moves: one rule for the host and for devices.
#pragma once

#include <limits>

#include "gradus/tensor/ops/loss_scale.h"
#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::raw {

// Returns where the scale is after a step that has found an infinity or not. `before` was there at the
// backward, `latest` after the step before this one; without one it is `before` with nothing found. So the
// scale changes once, however many steps follow a backward.
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
