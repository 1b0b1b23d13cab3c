// The numbers of a GradScaler, on the host and on devices.
#pragma once

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

}  // namespace gradus::raw
