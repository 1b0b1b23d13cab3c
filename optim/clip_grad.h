// Gradient clipping, as torch.nn.utils.clip_grad_norm_ and clip_grad_value_. Called between backward and step.
#pragma once

#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::optim {

struct ClipNormOptions {
  double norm_type = 2;  // may be infinite
  bool error_if_nonfinite = false;
};

// Multiplies all gradients of `params` by min(1, max_norm / (norm + 1e-6)), where `norm` is the norm of the
// vector of all their elements. Returns `norm`, 0-dimensional. Parameters without a gradient are skipped.
// Errors: ValueError for max_norm < 0 or norm_type <= 0, and for a norm that is not finite with
// error_if_nonfinite; StateError for gradients that a GradScaler has scaled.
Tensor clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, ClipNormOptions options = {});

// Clamps every element of the gradients to [-clip_value, clip_value].
// Errors: ValueError for clip_value < 0; StateError for gradients that a GradScaler has scaled.
void clip_grad_value_(const std::vector<Tensor>& params, double clip_value);

}  // namespace gradus::optim
