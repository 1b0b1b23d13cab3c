// Built against an installed Gradus by install_test.sh: trains a small network. Exits with 0 if the loss
// falls below a tenth.
#include <iostream>

#include "gradus/gradus.h"

using namespace gradus;

struct Net : nn::Layer {
  nn::Linear fc1{this, "fc1", {.in = 16, .out = 32}}, fc2{this, "fc2", {.in = 32, .out = 4}};
  Tensor forward(const Tensor& x) override { return fc2(relu(fc1(x))); }
};

int main() {
  manual_seed(1);
  Net net;
  GradManager gm;
  gm.attach(net.parameters());
  optim::Adam opt(net.parameters(), {.lr = 1e-2});
  const Tensor x = randn({64, 16}), target = argmax(narrow(x, 1, 0, 4), 1);
  float first = 0, last = 0;
  for (int step = 0; step < 100; ++step) {
    auto recording = gm.record();
    Tensor loss = nn::cross_entropy(net(x), target);
    gm.backward(loss);
    opt.step().clear_grad();
    last = loss.item<float>();
    if (step == 0) first = last;
  }
  std::cout << "loss " << first << " -> " << last << std::endl;
  return last < 0.1f * first ? 0 : 1;
}
