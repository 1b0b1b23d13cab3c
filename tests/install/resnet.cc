// A program outside of Gradus that runs a network of models/, and trains nothing.
#include <iostream>

#include "gradus/gradus.h"

using namespace gradus;

int main() {
  models::ResNet net(models::resnet50({.classes = 10}));
  net.eval();
  const Tensor logits = net(randn({1, 3, 64, 64}));
  std::cout << "resnet50 " << net.num_parameters() << " parameters, logits " << logits.shape() << std::endl;
  return logits.shape() == Shape{1, 10} && net.num_parameters() == 23'528'522 ? 0 : 1;
}
