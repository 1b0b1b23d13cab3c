// Two ranks (threads) train in mixed precision on cuda:0 and cuda:1. Only rank 1 sees an overflow; with
// `agree` both skip the step, without it rank 1 alone.
#include <gtest/gtest.h>

#include <limits>
#include <mutex>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/distributed/group/helpers.h"
#include "gradus/distributed/group/process_group.h"
#include "gradus/distributed/group/run_ranks.h"
#include "gradus/nn/nn.h"
#include "gradus/optim/grad_scaler.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"

namespace gradus {
namespace {

struct Outcome {
  std::vector<bool> stepped;
  std::vector<double> scales;  // after each step
  std::vector<bool> changed;   // the weights, by each step
  bool operator==(const Outcome&) const = default;
};

Outcome train(int rank, int bad_rank, int bad_step, const optim::GradScalerOptions& options) {
  const Device device{DeviceType::kCUDA, int16_t(rank)};
  nn::Linear net({.in = 6, .out = 3});
  net.to(device);
  GradManager gm;
  gm.attach(net.parameters());
  optim::SGD opt(net.parameters(), {.lr = 0.1});
  optim::GradScaler scaler(options);
  Outcome outcome;
  for (int step = 0; step < 4; ++step) {
    const double value = rank == bad_rank && step == bad_step ? std::numeric_limits<double>::infinity() : 0.5;
    const Tensor x = full({5, 6}, value, {.device = device});
    const std::vector<float> before = net.weight.to_vector<float>();
    auto recording = gm.record();
    const auto amp = autocast(DType::kBF16);
    scaler.backward(gm, sum(square(net(x))));
    outcome.stepped.push_back(scaler.step(opt));
    opt.clear_grad();
    outcome.scales.push_back(scaler.scale());
    outcome.changed.push_back(net.weight.to_vector<float>() != before);
  }
  return outcome;
}

std::vector<Outcome> on_two_ranks(const optim::GradScalerOptions& options) {
  std::vector<Outcome> outcomes(2);
  std::mutex mutex;
  dist::run_ranks(2, [&] {
    manual_seed(uint64_t(dist::get_rank()));
    Outcome mine = train(dist::get_rank(), 1, 2, options);
    const std::lock_guard lock(mutex);
    outcomes[size_t(dist::get_rank())] = std::move(mine);
  });
  return outcomes;
}

const Outcome kClean{{true, true, true, true}, {8, 8, 8, 8}, {true, true, true, true}};
const Outcome kSkipped{{true, true, false, true}, {8, 8, 4, 4}, {true, true, false, true}};

TEST(ScalersOfRanks, SkipTogetherWhereOneSeesAnInfinity) {
  const auto agree = [](bool found) { return dist::any_rank(found); };
  EXPECT_EQ(on_two_ranks({.init_scale = 8, .agree = agree}), (std::vector{kSkipped, kSkipped}));
}

TEST(ScalersOfRanks, SkipAloneWhereTheyDoNotAgree) {
  EXPECT_EQ(on_two_ranks({.init_scale = 8}), (std::vector{kClean, kSkipped}));
}

}  // namespace
}  // namespace gradus
