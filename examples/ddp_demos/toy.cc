#include "gradus/examples/ddp_demos/toy.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/nn/losses.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tensor/runtime/context.h"

namespace gradus::examples {

std::pair<Tensor, Tensor> samples_of(int rank) {
  manual_seed(1000 + static_cast<uint64_t>(rank));
  const Tensor x = randn({20, 10});
  return {x, contiguous(narrow(x, 1, 0, 5))};
}

std::pair<Tensor, Tensor> samples_of_all() {
  std::vector<Tensor> x, y;
  for (int rank = 0; rank < dist::get_world_size(); ++rank) {
    const auto [inputs, targets] = samples_of(rank);
    x.push_back(inputs);
    y.push_back(targets);
  }
  return {cat(x), cat(y)};
}

double difference_from_one_process(nn::Layer& model, double lr, int steps, const nn::Module& trained) {
  const auto [x, y] = samples_of_all();
  GradManager gm;
  gm.attach(model.parameters());
  optim::SGD opt(model.parameters(), {.lr = lr});
  for (int step = 0; step < steps; ++step) {
    auto recording = gm.record();
    gm.backward(nn::mse_loss(model(x), y));
    opt.step().clear_grad();
  }
  double difference = 0;
  const std::vector<Tensor> ours = model.parameters(), theirs = trained.parameters();
  for (size_t i = 0; i < ours.size(); ++i) {
    const std::vector<float> a = to(ours[i], kCPU).to_vector<float>(),
                             b = to(theirs[i], kCPU).to_vector<float>();
    for (size_t k = 0; k < a.size(); ++k) difference = std::max(difference, double(std::abs(a[k] - b[k])));
  }
  return difference;
}

std::string text(double value) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.4f", value);
  return digits;
}

std::string rounding(double difference) {
  return difference <= 1e-5 ? "within rounding" : std::to_string(difference);
}

}  // namespace gradus::examples
