// Built against an installed Gradus by install_test.sh: runs the forward of a ResNet-50 of models/. Exits
// with 0 if the logits' shape and the number of parameters are right.
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
