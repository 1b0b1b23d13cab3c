// A minimal model and random data for demonstrations, and comparisons with training in one process.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/layers/linear.h"
#include "gradus/nn/module.h"

namespace gradus::examples {

// Shapes: x f32[N,10] -> f32[N,5].
struct ToyModel : nn::Layer {
  nn::Linear net1{this, "net1", {.in = 10, .out = 10}};
  nn::Linear net2{this, "net2", {.in = 10, .out = 5}};
  Tensor forward(const Tensor& x) override { return net2(relu(net1(x))); }
};

// Logical devices of the CPU. Each has a queue and a thread that executes the queued kernels.
inline constexpr Device kFirst{DeviceType::kCPU, 1}, kSecond{DeviceType::kCPU, 2};

// ToyModel with net1 on the first device and net2 on the second.
// Shapes: x f32[N,10] on any device -> f32[N,5] on the second.
struct TwoDeviceToyModel : ToyModel {
  TwoDeviceToyModel() {
    net1.to(kFirst);
    net2.to(kSecond);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor h = relu(net1(to(x, kFirst)));
    return net2(to(h, kSecond));  // backward copies the gradient of h to the first device
  }
};

// Returns a rank's part of the batch: 20 random inputs f32[20,10], and as targets f32[20,5] their first
// halves. Seeds the generator.
std::pair<Tensor, Tensor> samples_of(int rank);
// Returns the samples of all ranks: f32[20 ranks,10] and f32[20 ranks,5].
std::pair<Tensor, Tensor> samples_of_all();

// Returns the largest difference of elements of two lists of tensors, on any devices.
double largest_difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b);

// Trains `model` on the samples of all ranks in this process, by SGD, and returns the largest difference of
// its parameters from those of `trained`.
double difference_from_one_process(nn::Layer& model, double lr, int steps, const nn::Module& trained);

// Returns the value with four digits after the point: "0.1235".
std::string text(double value);

// Returns "within rounding" up to 1e-5, else the number: f32 sums in another order differ in their last bits.
std::string rounding(double difference);

}  // namespace gradus::examples
