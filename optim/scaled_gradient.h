// Marks on gradients that a GradScaler has multiplied, so that no code uses them as true gradients.
// Internal to optim.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::optim::internal {

// Returns the factor the gradient is multiplied by; 0 if it has no mark.
double scale_of(const Tensor& grad);
// Returns whether the gradient was written to since it was marked.
bool changed_since_marked(const Tensor& grad);
// Marks the gradient with a factor; 0 removes the mark.
void mark_scaled(const Tensor& grad, double scale);

}  // namespace gradus::optim::internal
