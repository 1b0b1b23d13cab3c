// Programs as users write them. That they compile is half of the test.
#include <gtest/gtest.h>

#include <cmath>

#include "gradus/gradus.h"

using namespace gradus;

namespace {

struct Net : nn::Layer {
  nn::Conv2d conv1{this, "conv1", {.in = 1, .out = 4, .kernel = 3}};
  nn::Conv2d conv2{this, "conv2", {.in = 4, .out = 8, .kernel = 3}};
  nn::Linear fc1{this, "fc1", {.in = 1152, .out = 16}};
  nn::Linear fc2{this, "fc2", {.in = 16, .out = 10}};

  Tensor forward(const Tensor& x) override {
    Tensor h = relu(conv2(relu(conv1(x))));
    h = flatten(max_pool2d(h, {.kernel = 2}), 1);
    return fc2(relu(fc1(h)));
  }
};

TEST(Contract, AClassifierLearns) {
  manual_seed(3);
  Net net;
  GradManager gm;
  gm.attach(net.parameters());
  optim::SGD opt(net.parameters(), {.lr = 0.05, .momentum = 0.9, .weight_decay = 5e-4});
  data::GeneratedDigits train({.train = true, .size = 2000, .seed = 1});
  data::DataLoader loader(train, {.batch_size = 50, .shuffle = true, .num_workers = 2});
  double first = 0, epoch_sum = 0;
  for (int epoch = 0; epoch < 4; ++epoch) {
    epoch_sum = 0;
    for (const data::Batch& b : loader) {
      auto recording = gm.record();
      Tensor loss = nn::cross_entropy(net(b.input), b.target);
      gm.backward(loss);
      opt.step().clear_grad();
      epoch_sum += loss.item<double>();
      if (first == 0) first = epoch_sum;
    }
  }
  EXPECT_NEAR(first, std::log(10.0), 0.3);
  EXPECT_LT(epoch_sum / 40, first / 2);
}

struct Discriminator : nn::Layer {
  nn::Conv2d conv{this, "conv", {.in = 1, .out = 4, .kernel = 3}};
  nn::Linear fc{this, "fc", {.in = 4 * 6 * 6, .out = 1}};
  Tensor forward(const Tensor& x) override { return fc(flatten(leaky_relu(conv(x), 0.2), 1)); }
};

struct Generator : nn::Layer {
  nn::Linear fc{this, "fc", {.in = 5, .out = 64}};
  Tensor forward(const Tensor& z) override { return reshape(tanh(fc(z)), {-1, 1, 8, 8}); }
};

TEST(Contract, AGanTrainsWithAGradientPenaltyAndTwoManagers) {
  manual_seed(5);
  Discriminator disc;
  Generator gen;
  GradManager gm_d, gm_g;
  gm_d.attach(disc.parameters());
  gm_g.attach(gen.parameters());
  optim::Adam opt_d(disc.parameters(), {.lr = 1e-3, .betas = {0.5, 0.9}});
  optim::Adam opt_g(gen.parameters(), {.lr = 1e-3, .betas = {0.5, 0.9}});
  const Tensor real = rand({4, 1, 8, 8}), noise = randn({4, 5}), epsilon = rand({4, 1, 1, 1});
  const std::vector<float> d0 = disc.fc.weight.to_vector<float>(), g0 = gen.fc.weight.to_vector<float>();
  {
    auto recording = gm_d.record();
    Tensor fake = gen(noise);
    EXPECT_FALSE(autograd::is_tracked(fake)) << "the discriminator's step records nothing for the generator";
    Tensor x_hat = lerp(fake, real, epsilon);
    Tensor gx = autograd::grad([&](const Tensor& x) { return sum(disc(x)); }, x_hat);
    gm_d.backward(mean(disc(fake)) - mean(disc(real)) + 10 * mean(square(norm(gx, {1, 2, 3}) - 1)));
    for (const Tensor& p : gen.parameters()) EXPECT_FALSE(p.grad().defined());
    opt_d.step().clear_grad();
  }
  EXPECT_NE(disc.fc.weight.to_vector<float>(), d0);
  EXPECT_EQ(gen.fc.weight.to_vector<float>(), g0);
  {
    auto recording = gm_g.record();
    gm_g.backward(-mean(disc(gen(noise))));
    for (const Tensor& p : disc.parameters()) EXPECT_FALSE(p.grad().defined());
    opt_g.step().clear_grad();
  }
  EXPECT_NE(gen.fc.weight.to_vector<float>(), g0);
}

TEST(Contract, OneManagerNarrowsEachRecording) {
  Discriminator disc;
  Generator gen;
  GradManager gm;
  gm.attach(disc.parameters());
  gm.attach(gen.parameters());
  const Tensor noise = randn({4, 5});
  {
    auto recording = gm.record({.only = disc.parameters()});
    gm.backward(mean(disc(gen(noise))));
    for (const Tensor& p : gen.parameters()) EXPECT_FALSE(p.grad().defined());
    for (const Tensor& p : disc.parameters()) EXPECT_TRUE(p.grad().defined());
  }
  {
    auto recording = gm.record({.only = gen.parameters()});
    gm.backward(mean(disc(gen(noise))));
    for (const Tensor& p : gen.parameters()) EXPECT_TRUE(p.grad().defined());
  }
}

TEST(Contract, BackwardTakesNothingOneOrSeveralRoots) {
  Tensor a = ones({1}), b = ones({1});
  GradManager gm;
  gm.attach(a);
  gm.attach({b});
  {
    auto r = gm.record();
    gm.backward();
  }
  {
    auto r = gm.record();
    gm.backward({});
  }
  {
    auto r = gm.record();
    gm.backward(a * b);
  }
  {
    auto r = gm.record();
    gm.backward({a * b, a + b});
  }
  {
    auto r = gm.record();
    gm.backward({a * b, a + b}, {full({1}, 2.0), full({1}, 3.0)});
  }
  EXPECT_EQ(a.grad().item<double>(), 1 + 2 + 5);
}

TEST(Contract, RecordingsWaitForTheirBackward) {
  Tensor w = full({1}, 2.0);
  GradManager gm;
  gm.attach(w);
  std::vector<Recording> in_flight;
  std::vector<Tensor> losses;
  for (int k = 0; k < 3; ++k) {
    Recording r = gm.record();
    losses.push_back(w * static_cast<double>(k + 1));
    in_flight.push_back(std::move(r).pause());
  }
  for (size_t k = 0; k < 3; ++k) in_flight[k].backward(losses[k]);
  EXPECT_EQ(w.grad().item<double>(), 6);
}

}  // namespace
