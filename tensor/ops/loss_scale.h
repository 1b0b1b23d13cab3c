// The state and the options of dynamic loss scaling (GradScaler), in a form that CPU and CUDA kernels share. The
// update rule is next_loss_scale() in formulas/loss_scale.h.
#pragma once

namespace gradus::raw {

// On a device: a tensor f64[4] with these members in this order. Counts are exact below 2^53.
struct LossScale {
  double scale = 1;           // factor of the loss; gradients are divided by `scale` before a step
  double growth_tracker = 0;  // successive backwards without a skipped step; reset to 0 by growth and backoff
  double skipped = 0;    // steps skipped because of infinite or NaN gradients, in total, over all optimizers
  double found_inf = 0;  // 1 if a step since the last backward was skipped, else 0
};

// The scale is multiplied by growth_factor (> 1) when growth_tracker reaches growth_interval, and by backoff_factor
// (< 1) after a backward with skipped steps.
struct LossScaleOptions {
  double growth_factor, backoff_factor, growth_interval;
};

// The smallest normal f32 number. With a smaller scale, GradScaler throws a StateError, because the scale or its
// reciprocal may not be representable in f32.
inline constexpr double kMinLossScale = 0x1p-126;

}  // namespace gradus::raw
