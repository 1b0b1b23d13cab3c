// Gradient clipping, between backward and step.
#pragma once

#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::optim {

struct ClipNormOptions {
  double norm_type = 2;  // may be infinite
  bool error_if_nonfinite = false;
};

// Scales all gradients of `params` by one factor, so that the norm of all their elements together is at most
// max_norm. Returns the norm before, 0-dimensional. Parameters without a gradient are skipped.
// Errors: ValueError for max_norm < 0 or norm_type <= 0, and for a norm that is not
// finite under error_if_nonfinite.
Tensor clip_grad_norm_(const std::vector<Tensor>& params, double max_norm, ClipNormOptions options = {});

// Limits every element of the gradients to [-clip_value, clip_value].
// Errors: ValueError for clip_value < 0.
void clip_grad_value_(const std::vector<Tensor>& params, double clip_value);

}  // namespace gradus::optim
