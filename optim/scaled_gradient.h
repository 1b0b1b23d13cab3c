// Marks gradients that are scaled by a GradScaler, so that steps and clipping refuse them. Internal to optim.
#pragma once

#include <string>

#include "gradus/tensor/tensor.h"

namespace gradus::optim::internal {

// The factor of a gradient. It is `number`, or, if that is 0, the first element of a raw::LossScale
// on a device.
struct Factor {
  double number = 0;
  Tensor on_device;

  bool operator==(const Factor& other) const {
    return number == other.number && on_device.ref().get() == other.on_device.ref().get();
  }
  // " by 8", for errors; empty if the factor is on a device, because an error does not wait for the device.
  std::string text() const;
};

// Returns the factor the gradient is multiplied by; null if it has no mark.
const Factor* factor_of(const Tensor& grad);
// Returns whether the gradient was written to since it was marked.
bool changed_since_marked(const Tensor& grad);
void mark_scaled(const Tensor& grad, const Factor& factor);
void remove_mark(const Tensor& grad);

}  // namespace gradus::optim::internal
