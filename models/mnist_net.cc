// MnistNet's forward.
#include "gradus/models/mnist_net.h"

#include "gradus/autograd/ops/ops.h"

namespace gradus::models {

Tensor MnistNet::features(const Tensor& x) {
  Tensor h = max_pool2d(conv2.relu(conv1.relu(x)), {.kernel = 2});
  return fc1.relu(flatten(dropout1(std::move(h)), 1));
}

Tensor MnistNet::forward(const Tensor& x) { return fc2(dropout2(features(x))); }

}  // namespace gradus::models
