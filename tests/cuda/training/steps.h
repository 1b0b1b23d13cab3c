// Training steps of the examples' networks with the optimizers of their programs, on one batch of random
// images that lies on the device. A step is forward, loss, backward, optimizer, clear_grad.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gradus/tensor/base/device.h"

namespace gradus {

using Step = std::function<void()>;

struct StepOptions {
  Device device;
  int64_t batch, size;  // images, and the pixels of their sides
  bool bf16 = false;    // as --amp bf16
  int64_t width = 0;    // channels of the first layers, where a network has a choice; 0: the program's
};

struct Example {
  std::string name;
  int64_t batch, channels, size;  // of the program's images, by default
  std::function<Step(const StepOptions&)> make;
};

// The networks of mnist, cifar10, imagenet and gan.
const std::vector<Example>& examples();
const Example& example(const std::string& name);

}  // namespace gradus
