// How a GradScaler's scale moves: one rule for its numbers on the host and on devices.
#pragma once

#include <limits>

#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::raw {

// On a device it is f64[4]. Counts are whole numbers, far below 2^53.
struct LossScale {
  double scale = 1;
  double clean = 0;    // updates without an infinity since the scale last changed
  double skipped = 0;  // steps left out so far
  double found = 0;    // 1 if one was left out since the backward, else 0
};

struct LossScaleOptions {
  double growth_factor, backoff_factor, growth_interval;
};

// A smaller scale has no reciprocal in f32.
inline constexpr double kSmallestScale = 0x1p-126;

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
