// Whole training steps on the emulated cuda:0: losses follow those on the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/models/models.h"
#include "gradus/nn/losses.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/random.h"

namespace gradus {
namespace {

constexpr Device kCuda{DeviceType::kCUDA};

// Numbers of the standard normal distribution, and classes: the same on each device.
struct Images {
  Tensor x, target;
  Images(const Shape& shape, int64_t classes, int step, DType dtype, Device device) {
    manual_seed(1000 + uint64_t(step));
    x = raw::to(raw::to(randn(shape), dtype), device);
    target = raw::to(randint(classes, {shape[0]}), device);
  }
};

using Losses = std::vector<double>;

Losses classify(nn::Layer& net, const Shape& shape, int64_t classes, int steps, DType dtype, Device device) {
  net.to(dtype).to(device);
  GradManager gm;
  gm.attach(net.parameters());
  optim::SGD opt(net.parameters(), {.lr = 0.01, .momentum = 0.9});
  Losses losses;
  for (int step = 0; step < steps; ++step) {
    const Images images(shape, classes, step, dtype, device);
    auto recording = gm.record();
    const Tensor loss = nn::cross_entropy(net(images.x), images.target);
    gm.backward(loss);
    opt.step().clear_grad();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

// Each loss within `tolerance` of the CPU's, as a part of it.
void expect_follow(const std::function<Losses(Device)>& train, double tolerance) {
  const Losses expected = train(kCPU), given = train(kCuda);
  ASSERT_EQ(given.size(), expected.size());
  for (size_t i = 0; i < given.size(); ++i)
    EXPECT_NEAR(given[i], expected[i], tolerance * std::abs(expected[i])) << "step " << i;
}

Losses mnist(DType dtype, int steps, Device device) {
  manual_seed(1);
  models::MnistNet net;
  net.dropout1.eval();
  net.dropout2.eval();
  return classify(net, {2, 1, 28, 28}, 10, steps, dtype, device);
}

TEST(Training, Mnist) {
  expect_follow([](Device d) { return mnist(DType::kF32, 30, d); }, 1e-4);
}
TEST(Training, MnistInF64) {
  expect_follow([](Device d) { return mnist(DType::kF64, 30, d); }, 1e-10);
}

Losses resnet20(DType dtype, Device device) {
  manual_seed(2);
  models::ResNet net(models::cifar_resnet(20));
  return classify(net, {4, 3, 32, 32}, 10, 5, dtype, device);
}

TEST(Training, ResNet20) {
  expect_follow([](Device d) { return resnet20(DType::kF32, d); }, 1e-4);
}
TEST(Training, ResNet20InF64) {
  expect_follow([](Device d) { return resnet20(DType::kF64, d); }, 1e-10);
}

// The losses of both networks, in turn.
Losses dcgan(DType dtype, Device device) {
  manual_seed(3);
  models::DCGANGenerator gen({.size = 16, .channels = 1, .width = 8, .latent = 16});
  models::DCGANDiscriminator disc({.size = 16, .channels = 1, .width = 8});
  gen.to(dtype).to(device);
  disc.to(dtype).to(device);
  GradManager gm_gen, gm_disc;
  gm_gen.attach(gen.parameters());
  gm_disc.attach(disc.parameters());
  optim::SGD opt_gen(gen.parameters(), {.lr = 0.05}), opt_disc(disc.parameters(), {.lr = 0.05});
  const auto loss_of = [](const Tensor& logits, double label) {
    return nn::binary_cross_entropy_with_logits(logits, full_like(logits, label));
  };
  Losses losses;
  for (int step = 0; step < 5; ++step) {
    const Images real({8, 1, 16, 16}, 1, 2 * step, dtype, device),
        noise({8, 16}, 1, 2 * step + 1, dtype, device);
    {
      auto recording = gm_disc.record();
      const Tensor loss = loss_of(disc(real.x), 1) + loss_of(disc(detach(gen(noise.x))), 0);
      gm_disc.backward(loss);
      opt_disc.step().clear_grad();
      losses.push_back(loss.item<double>());
    }
    auto recording = gm_gen.record();
    const Tensor loss = loss_of(disc(gen(noise.x)), 1);
    gm_gen.backward(loss);
    opt_gen.step().clear_grad();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

TEST(Training, Dcgan) {
  expect_follow([](Device d) { return dcgan(DType::kF32, d); }, 1e-4);
}
TEST(Training, DcganInF64) {
  expect_follow([](Device d) { return dcgan(DType::kF64, d); }, 1e-10);
}

}  // namespace
}  // namespace gradus
