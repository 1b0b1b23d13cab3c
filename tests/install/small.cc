// Built against an installed Gradus by install_test.sh: trains a network with gradus/core.h as its only
// header. Exits with 0 if the loss falls below half.
#include <iostream>

#include "gradus/core.h"

using namespace gradus;

struct Net : nn::Layer {
  nn::Conv2d conv{this, "conv", {.in = 3, .out = 16, .kernel = 3, .padding = 1}};
  nn::BatchNorm2d norm{this, "norm", {.features = 16}};
  nn::Dropout dropout{this, "dropout", {.p = 0.1}};
  nn::LayerNorm layer_norm{this, "layer_norm", {.shape = 64}};
  nn::Linear last{this, "last", {.in = 64, .out = 4}};
  Tensor forward(const Tensor& x) override {
    const Tensor features = flatten(avg_pool2d(max_pool2d(relu(norm(conv(x))), 2), 2), 1);
    return last(dropout(gelu(layer_norm(features))));
  }
};

int main() {
  manual_seed(1);
  Net net;
  GradManager gm;
  gm.attach(net.parameters());
  optim::AdamW opt(net.parameters(), {.lr = 1e-2});
  optim::CosineAnnealingLR schedule(opt, {.t_max = 60});
  // target: the channel with the largest mean, 0 to 2.
  const Tensor x = randn({32, 3, 8, 8}), target = argmax(flatten(mean(x, {2, 3}), 1), 1);
  float first = 0, last = 0;
  for (int step = 0; step < 60; ++step) {
    auto recording = gm.record();
    Tensor loss = nn::cross_entropy(net(x), target);
    gm.backward(loss);
    optim::clip_grad_norm_(net.parameters(), 1);
    opt.step().clear_grad();
    schedule.step();
    last = loss.item<float>();
    if (step == 0) first = last;
  }
  std::cout << "loss " << first << " -> " << last << std::endl;
  return last < 0.5f * first ? 0 : 1;
}
