// A small training whose CUDA calls tests make fail on the emulator, its expected values computed on the CPU,
// and counts of the resources that are in use.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus {

inline constexpr Device kCuda{DeviceType::kCUDA};

// With `gain` before it, the convolution computes its output, input gradient and weight gradient.
struct SmallNet : nn::Layer {
  nn::Parameter gain{this, "gain", ones({1})};
  nn::Conv2d conv{this, "conv", {.in = 1, .out = 2, .kernel = 3, .padding = 1}};
  nn::Linear fc{this, "fc", {.in = 2, .out = 3}};
  Tensor forward(const Tensor& x) override;
};

// A network, its optimizer and a batch of two images. All values depend on the size of the images alone.
class Training {
 public:
  Training(Device device, int64_t height, int64_t width);

  // Copies the batch to the device, computes the loss and its gradients, steps, adds up the parameters on a
  // second stream, reads both numbers, and gives back the cached memory. Drops the gradients of an earlier
  // step that failed.
  std::vector<double> step();
  // All numbers of the parameters.
  std::vector<double> parameters();

  Tensor images, target;

 private:
  Device device_;
  SmallNet net_;
  GradManager gm_;
  optim::SGD opt_;
};

// Results of the same training on the CPU.
struct Expected {
  Expected(int64_t height, int64_t width);
  static constexpr size_t kSteps = 3;
  std::vector<double> read[kSteps];            // by each step
  std::vector<double> parameters[kSteps + 1];  // before the first step, and after each
};

bool is_near(const std::vector<double>& a, const std::vector<double>& b);

// Resources of the emulated devices and libraries in use, without those cached for copies from the host.
struct Holdings {
  static Holdings now();
  size_t blocks, pinned, streams, events, products, convolutions;  // the last two: descriptors
  bool operator==(const Holdings&) const = default;
};
std::string to_string(const Holdings& h);

}  // namespace gradus
