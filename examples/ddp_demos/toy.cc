// Samples by rank from a seeded generator, and the reference training in one process.
#include "gradus/examples/ddp_demos/toy.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
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

double largest_difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const std::vector<double> x = a[i].to_vector<double>(), y = b[i].to_vector<double>();
    for (size_t k = 0; k < x.size(); ++k) {
      const double d = std::abs(x[k] - y[k]);
      difference = std::max(difference, std::isnan(d) ? std::numeric_limits<double>::infinity() : d);
    }
  }
  return difference;
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
  return largest_difference(model.parameters(), trained.parameters());
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
