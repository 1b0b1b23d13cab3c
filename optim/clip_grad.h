// In-place gradient clipping, as torch.nn.utils.clip_grad_norm_ and clip_grad_value_, after backward.
#pragma once

#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::optim {

struct ClipNormOptions {
  double norm_type = 2;             // p of the p-norm; infinity: the maximum absolute value
  bool error_if_nonfinite = false;  // checks the norm, for which the host waits for the device
};

// Multiplies all gradients of `params` by min(1, max_norm / (norm + 1e-6)), where `norm` is the norm of the
// vector of all their elements. Returns `norm`, 0-dimensional, f64 if the first gradient is f64, else f32, on
// the gradients' device. Parameters without a gradient are skipped; without any gradient the norm is 0.
// Errors: ValueError for max_norm < 0 or norm_type <= 0, and for a norm that is not finite with
// error_if_nonfinite; StateError for gradients that a GradScaler has scaled; DeviceError for several devices.
Tensor clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, ClipNormOptions options = {});

// Clamps every element of the gradients to [-clip_value, clip_value].
// Errors: ValueError for clip_value < 0; StateError and DeviceError as clip_grad_norm_.
void clip_grad_value_(const std::vector<Tensor>& params, double clip_value);

}  // namespace gradus::optim
