// Internal to optim: marks on gradients that a GradScaler has multiplied by its scale. Optimizer::step and
// clipping reject marked gradients. A mark is stored with the gradient's storage and freed with it.
#pragma once

#include <string>

#include "gradus/tensor/tensor.h"

namespace gradus::optim::internal {

// The factor by which a gradient is multiplied: `number`, or, if `number` is 0, element 0 of on_device,
// f64[4], the members of a raw::LossScale on a GPU.
struct Factor {
  double number = 0;
  Tensor on_device;

  bool operator==(const Factor& other) const {
    return number == other.number && on_device.ref().get() == other.on_device.ref().get();
  }
  // " by 8", for errors; empty if the factor is on a device, because an error does not wait for the device.
  std::string text() const;
};

// Returns the factor of a marked gradient, null for other (defined) gradients. Valid until the mark changes.
const Factor* factor_of(const Tensor& grad);
// Returns whether the storage of a marked gradient was written to after the last mark in it was set or
// removed.
bool changed_since_marked(const Tensor& grad);
void mark_scaled(const Tensor& grad, const Factor& factor);  // sets or replaces the mark
void remove_mark(const Tensor& grad);                        // does nothing without a mark

}  // namespace gradus::optim::internal
