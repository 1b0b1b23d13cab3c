// Which gradients a GradScaler has multiplied, so that nobody takes them for true ones. Internal to optim.
#pragma once

#include "gradus/tensor/tensor.h"

namespace gradus::optim::internal {

// What the gradient is multiplied by; 0: nothing, as far as is known.
double scale_of(const Tensor& grad);
// Whether it was written to since it was marked.
bool changed_since_marked(const Tensor& grad);
// 0 takes the mark off.
void mark_scaled(const Tensor& grad, double scale);

}  // namespace gradus::optim::internal
