// Placement: determines the device of each parameter and buffer of a model under construction. Tensors on the
// meta device take no memory, and their initializers advance the random generator as on other devices. Ranks
// of a pipeline thus construct a model with the initial values of a single process, each with memory for its
// own part alone.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gradus/tensor/base/device.h"

namespace gradus::nn::internal {

// In effect on the calling thread for its lifetime. Placements nest; the innermost one counts.
class Placement {
 public:
  // Places all tensors on the meta device, and stores their names in order of registration.
  Placement();
  // Places each tensor of the same model, whose names were stored before, on device_of(its dotted name).
  using DeviceOf = std::function<Device(const std::string& name)>;
  Placement(std::vector<std::string> names, DeviceOf device_of);
  ~Placement();
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  // Returns the names of all tensors registered so far.
  const std::vector<std::string>& names() const { return registered_; }

  // Returns the innermost Placement of the calling thread, or null.
  static Placement* current();
  // Returns the device of the tensor that is registered next, on which its initial value is computed. Meta if
  // there are no more names.
  Device next_device() const;
  // Called by Module when a parameter or buffer is registered: stores its name and returns its device.
  // Errors: StateError when the name differs from the stored name in this position.
  Device register_tensor(const std::string& name);

 private:
  std::vector<std::string> expected_;  // names of the first construction; empty while it runs
  DeviceOf device_of_;                 // empty: meta for all
  std::vector<std::string> registered_;
  Placement* const outer_;
};

// Returns the device on which a layer computes its next initial value: that of the open Placement, else
// Context::device.
Device initial_device();

}  // namespace gradus::nn::internal
