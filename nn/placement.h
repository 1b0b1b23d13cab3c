// Placement: says for each parameter and buffer of a model in construction on which device it lies. What lies
// on the meta device takes no memory, and its draws advance the generator all the same. So ranks that share a
// model build it with the numbers that one process would give it, and each holds its own part only.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gradus/tensor/base/device.h"

namespace gradus::nn::internal {

class Placement {
 public:
  // Puts everything on the meta device, and notes the names in order.
  Placement();
  // Puts each tensor of the same model where device_of(its dotted name) says.
  using DeviceOf = std::function<Device(const std::string& name)>;
  Placement(std::vector<std::string> names, DeviceOf device_of);
  ~Placement();
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  // Returns the names of all tensors registered so far.
  const std::vector<std::string>& names() const { return registered_; }

  // The thread's, or null.
  static Placement* current();
  // Returns where the tensor lies that is registered next: its initial value is about to be made.
  Device next() const;
  // Notes a tensor, and returns where it lies.
  // Errors: StateError when the names differ from the given ones.
  Device registered(const std::string& name);

 private:
  std::vector<std::string> planned_;
  DeviceOf device_of_;
  std::vector<std::string> registered_;
  Placement* const outer_;
};

// Returns where a layer makes its next initial value: as the open placement says, else Context::device.
Device initial_device();

}  // namespace gradus::nn::internal
