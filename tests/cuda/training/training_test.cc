// Whole training steps on the emulated cuda:0: losses follow the CPU's. Steps whose gradients overflow are skipped.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/models/models.h"
#include "gradus/nn/losses.h"
#include "gradus/optim/grad_scaler.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/random.h"
#include "gradus/tests/cuda/training/follow_cpu.h"

namespace gradus {
namespace {

// Enough for momentum to matter; an emulated step takes a second.
constexpr int kSteps = 3;

Losses mnist(Precision precision, Device device) {
  manual_seed(1);
  models::MnistNet net;
  net.dropout1.eval();
  net.dropout2.eval();
  return classify(net, {2, 1, 28, 28}, 10, kSteps, precision, device);
}

TEST(Training, Mnist) { expect_follow(mnist, kF32); }
TEST(Training, MnistInF64) { expect_follow(mnist, kF64); }
TEST(Training, MnistInMixedPrecision) { expect_follow(mnist, kMixed); }

Losses resnet20(Precision precision, Device device) {
  manual_seed(2);
  models::ResNet net(models::cifar_resnet(20));
  return classify(net, {4, 3, 32, 32}, 10, kSteps, precision, device);
}

TEST(Training, ResNet20) { expect_follow(resnet20, kF32); }
TEST(Training, ResNet20InF64) { expect_follow(resnet20, kF64); }
TEST(Training, ResNet20InMixedPrecision) { expect_follow(resnet20, kMixed); }

// The losses of both networks, in turn.
Losses dcgan(Precision precision, Device device) {
  manual_seed(3);
  models::DCGANGenerator gen({.size = 16, .channels = 1, .width = 8, .latent = 16});
  models::DCGANDiscriminator disc({.size = 16, .channels = 1, .width = 8});
  gen.to(precision.dtype).to(device);
  disc.to(precision.dtype).to(device);
  GradManager gm_gen, gm_disc;
  gm_gen.attach(gen.parameters());
  gm_disc.attach(disc.parameters());
  optim::SGD opt_gen(gen.parameters(), {.lr = 0.05}), opt_disc(disc.parameters(), {.lr = 0.05});
  Updates updates(precision);
  const auto loss_of = [&](const Tensor& logits, double label) {
    EXPECT_EQ(logits.dtype(), precision.computes_in());
    return nn::binary_cross_entropy_with_logits(logits, full_like(logits, label));
  };
  for (int step = 0; step < 5; ++step) {
    const Samples real({8, 1, 16, 16}, 1, 2 * step, precision.dtype, device),
        noise({8, 16}, 1, 2 * step + 1, precision.dtype, device);
    const auto amp = precision.scope();
    {
      auto recording = gm_disc.record();
      updates.update(gm_disc, opt_disc, loss_of(disc(real.x), 1) + loss_of(disc(detach(gen(noise.x))), 0));
    }
    auto recording = gm_gen.record();
    updates.update(gm_gen, opt_gen, loss_of(disc(gen(noise.x)), 1));
  }
  return updates.losses;
}

TEST(Training, Dcgan) { expect_follow(dcgan, kF32); }
TEST(Training, DcganInF64) { expect_follow(dcgan, kF64); }
TEST(Training, DcganInMixedPrecision) { expect_follow(dcgan, kMixed); }

// All parameters, one after the other.
std::vector<float> weights_of(const nn::Module& net) {
  std::vector<float> all;
  for (const Tensor& p : net.parameters()) {
    const std::vector<float> values = p.to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// A small network that trains in mixed precision, step by step.
struct Scaled {
  Scaled(Device d, double init_scale) : device(d), scaler({.init_scale = init_scale}) {
    manual_seed(4);
    net.add<nn::Conv2d>({.in = 1, .out = 4, .kernel = 3, .stride = 2});
    net.add<nn::BatchNorm2d>({.features = 4});
    net.add<nn::ReLU>();
    net.add<nn::Flatten>();
    net.add<nn::Linear>({.in = 36, .out = 3});
    net.to(device);
    gm.attach(net.parameters());
    opt.emplace(net.parameters(), optim::SGDOptions{.lr = 0.01, .momentum = 0.9});
  }

  // Returns whether it stepped; else the weights stay and the scale is halved. `factor` scales the images.
  bool step(double factor = 1) {
    const std::vector<float> before = weights_of(net);
    const double scale = scaler.scale();
    const Samples images({4, 1, 8, 8}, 3, steps++, DType::kF32, device);
    auto recording = gm.record();
    const auto amp = autocast(DType::kBF16);
    const Tensor loss = 64 * nn::cross_entropy(net(images.x * factor), images.target);
    scaler.backward(gm, loss);
    const bool stepped = scaler.step(*opt, {.clip_norm = 10.0});
    opt->clear_grad();
    losses.push_back(loss.item<double>());
    EXPECT_EQ(weights_of(net) == before, !stepped);
    EXPECT_EQ(scaler.scale(), stepped ? scale : scale / 2);
    return stepped;
  }

  const Device device;
  nn::Sequential net;
  GradManager gm;
  std::optional<optim::SGD> opt;
  optim::GradScaler scaler;
  int steps = 0;
  Losses losses;
};

TEST(Overflow, OfTooLargeAScaleIsLeftOutUntilTheScaleFits) {
  const auto train = [](Device device) {
    Scaled s(device, 0x1p127);
    int skipped = 0;
    while (!s.step()) ++skipped;
    EXPECT_GE(skipped, 4);
    EXPECT_LE(skipped, 40);
    EXPECT_EQ(s.scaler.skipped_steps(), skipped);
    for (int i = 0; i < 5; ++i) EXPECT_TRUE(s.step());
    return s.losses;
  };
  expect_follow(train, kMixed.tolerance);
}

TEST(Overflow, OfOneBatchIsLeftOut) {
  const auto train = [](Device device) {
    Scaled s(device, 1024);
    for (int i = 0; i < 8; ++i)
      EXPECT_EQ(s.step(i == 3 ? std::numeric_limits<double>::infinity() : 1), i != 3) << i;
    EXPECT_TRUE(std::isnan(s.losses[3]));
    s.losses.erase(s.losses.begin() + 3);
    return s.losses;
  };
  expect_follow(train, kMixed.tolerance);
}

}  // namespace
}  // namespace gradus
