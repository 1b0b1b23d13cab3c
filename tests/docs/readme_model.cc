// The program of README.md: trains a classifier of digits, and prints the loss of each of 200 steps.
#include <iostream>
#include "gradus/gradus.h"
using namespace gradus;

struct Net : nn::Layer {  // layers register themselves under the names given here
  nn::Linear fc1{this, "fc1", {.in = 784, .out = 128}}, fc2{this, "fc2", {.in = 128, .out = 10}};
  Tensor forward(const Tensor& x) override { return fc2(relu(fc1(flatten(x, 1)))); }
};

int main() {
  Net net;
  GradManager gm;
  gm.attach(net.parameters());
  optim::Adam opt(net.parameters());
  for (const data::Batch& b : data::DataLoader(data::GeneratedDigits({.size = 12800}), {.batch_size = 64})) {
    auto recording = gm.record();  // what happens from here to the end of the scope can be differentiated
    Tensor loss = nn::cross_entropy(net(b.input), b.target);
    gm.backward(loss);
    opt.step().clear_grad();
    std::cout << loss.item<float>() << std::endl;
  }
}
