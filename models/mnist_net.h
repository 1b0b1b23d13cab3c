// MnistNet: the small convolutional network for 28x28 digits from PyTorch's mnist example.
#pragma once

#include "gradus/autograd/ops/ops.h"
#include "gradus/nn/nn.h"

namespace gradus::models {

// 1,199,882 parameters: two 3x3 convolutions, a 2x2 max pooling and two linear layers. conv1.relu(x) is
// relu(conv1(x)) as one op. Returns logits, for nn::cross_entropy.
// Shapes: x [N,1,28,28] -> [N,10].
// Source: pytorch/examples, mnist/main.py.
struct MnistNet : nn::Layer {
  nn::Conv2d conv1{this, "conv1", {.in = 1, .out = 32, .kernel = 3}};
  nn::Conv2d conv2{this, "conv2", {.in = 32, .out = 64, .kernel = 3}};
  nn::Dropout dropout1{this, "dropout1", {.p = 0.25}};
  nn::Dropout dropout2{this, "dropout2", {.p = 0.5}};
  nn::Linear fc1{this, "fc1", {.in = 9216, .out = 128}};
  nn::Linear fc2{this, "fc2", {.in = 128, .out = 10}};

  // Returns the features that dropout2 and fc2 classify: relu(fc1(...)).
  // Shapes: x [N,1,28,28] -> [N,128].
  Tensor features(const Tensor& x) {
    Tensor h = max_pool2d(conv2.relu(conv1.relu(x)), {.kernel = 2});
    return fc1.relu(flatten(dropout1(std::move(h)), 1));
  }
  Tensor forward(const Tensor& x) override { return fc2(dropout2(features(x))); }
};

}  // namespace gradus::models
