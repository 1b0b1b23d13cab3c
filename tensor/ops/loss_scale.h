// The state of a GradScaler (dynamic loss scaling of mixed precision training), on the host and on devices.
#pragma once

namespace gradus::raw {

// On a device this is a tensor f64[4]. Counts are integers below 2^53.
struct LossScale {
  double scale = 1;
  double good_steps = 0;  // steps without infinite gradients since the scale last changed
  double skipped = 0;     // total number of skipped steps
  double found_inf = 0;   // 1 if a step was skipped since the last backward, else 0
};

struct LossScaleOptions {
  double growth_factor, backoff_factor, growth_interval;
};

// The reciprocal of a smaller scale overflows f32.
inline constexpr double kMinLossScale = 0x1p-126;

}  // namespace gradus::raw
