// What a training asks of the device in a step, from the third on: nothing to wait for, no memory, no copy
// from or to the host, and few launches.
#include <gtest/gtest.h>

#include <functional>
#include <iostream>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/models/models.h"
#include "gradus/nn/losses.h"
#include "gradus/optim/grad_scaler.h"
#include "gradus/optim/optimizers/adam.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/cuda/host_calls.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/creation.h"
#include "gradus/tensor/ops/random.h"

namespace gradus {
namespace {

constexpr Device kCuda{DeviceType::kCUDA};

// Products and convolutions of the libraries are launches, too, and so are copies within the device.
void expect_few_calls(int64_t most_launches, const std::function<void()>& step) {
  step(), step();
  cuda::HostCallScope calls;
  step();
  const cuda::HostCalls all = calls.total();
  EXPECT_EQ(all.waits, 0);
  EXPECT_EQ(all.allocations, 0);
  EXPECT_EQ(all.pageable_copies, 0);
  EXPECT_EQ(all.copies_to_device, 0);
  EXPECT_EQ(all.copies_to_host, 0);
  EXPECT_LE(all.launches + all.library_calls + all.copies_on_device, most_launches);
  EXPECT_GT(all.library_calls, 0);
  std::cout << calls.table();  // who it was, and the figures of docs/cuda.md
}

struct Classifier {
  Classifier(nn::Layer& network, const Shape& shape)
      : net(network),
        x(randn(shape, {.device = kCuda})),
        target(randint(10, {shape[0]}, {DType::kI64, kCuda})),
        opt(net.to(kCuda).parameters(), {.lr = 0.01, .momentum = 0.9}) {
    gm.attach(net.parameters());
  }
  void step() {
    auto recording = gm.record();
    gm.backward(nn::cross_entropy(net(x), target));
    opt.step().clear_grad();
  }

  nn::Layer& net;
  Tensor x, target;
  GradManager gm;
  optim::SGD opt;
};

// In mixed precision, with a GradScaler that decides on the device.
template <class Opt, class Options> void expect_few_calls_of_scaled(Options options, int64_t most_launches) {
  models::MnistNet net;
  const Tensor x = randn({2, 1, 28, 28}, {.device = kCuda}), target = randint(10, {2}, {DType::kI64, kCuda});
  Opt opt(net.to(kCuda).parameters(), options);
  GradManager gm;
  gm.attach(net.parameters());
  optim::GradScaler scaler;
  expect_few_calls(most_launches, [&] {
    auto recording = gm.record();
    const auto amp = autocast(DType::kBF16);
    scaler.backward(gm, nn::cross_entropy(net(x), target));
    scaler.step(opt, {.clip_norm = 10.0});
    opt.clear_grad();
  });
}

TEST(Calls, ScaledMnist) {
  expect_few_calls_of_scaled<optim::SGD>(optim::SGDOptions{.lr = 0.01, .momentum = 0.9}, 60);
  expect_few_calls_of_scaled<optim::Adam>(optim::AdamOptions{}, 60);
  expect_few_calls_of_scaled<optim::AdamW>(optim::AdamWOptions{}, 60);
}

TEST(Calls, Mnist) {
  models::MnistNet net;
  Classifier c(net, {2, 1, 28, 28});
  expect_few_calls(32, [&] { c.step(); });
}

TEST(Calls, ResNet18) {
  models::ResNet net(models::resnet18());
  Classifier c(net, {2, 3, 32, 32});
  expect_few_calls(200, [&] { c.step(); });
}

TEST(Calls, Dcgan) {
  models::DCGANGenerator gen({.size = 16, .channels = 1, .width = 8, .latent = 16});
  models::DCGANDiscriminator disc({.size = 16, .channels = 1, .width = 8});
  GradManager gm_gen, gm_disc;
  gm_gen.attach(gen.to(kCuda).parameters());
  gm_disc.attach(disc.to(kCuda).parameters());
  optim::SGD opt_gen(gen.parameters(), {.lr = 0.05, .momentum = 0.9}),
      opt_disc(disc.parameters(), {.lr = 0.05, .momentum = 0.9});
  const Tensor real = randn({8, 1, 16, 16}, {.device = kCuda}), noise = randn({8, 16}, {.device = kCuda});
  const auto loss_of = [](const Tensor& logits, double label) {
    return nn::binary_cross_entropy_with_logits(logits, full_like(logits, label));
  };
  expect_few_calls(120, [&] {
    {
      auto recording = gm_disc.record();
      gm_disc.backward(loss_of(disc(real), 1) + loss_of(disc(detach(gen(noise))), 0));
      opt_disc.step().clear_grad();
    }
    auto recording = gm_gen.record();
    gm_gen.backward(loss_of(disc(gen(noise)), 1));
    opt_gen.step().clear_grad();
  });
}

}  // namespace
}  // namespace gradus
