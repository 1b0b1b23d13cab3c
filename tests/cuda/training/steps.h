// Training steps of the example programs' networks with their optimizers, on one batch of random images on
// the device. A step is forward, loss, backward, optimizer step, clear_grad.
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
  int64_t batch, size;  // number of images, and pixels per side
  bool bf16 = false;    // as --amp bf16
  int64_t width = 0;    // channels of the first layers, if the network has a choice; 0: the default
};

struct Example {
  std::string name;
  int64_t batch, channels, size;  // defaults of the program
  std::function<Step(const StepOptions&)> make;
};

// The networks of mnist, cifar10, imagenet and gan.
const std::vector<Example>& examples();
const Example& example(const std::string& name);

}  // namespace gradus
