// The examples of docs/guide/amp.md: they compile and train. The table of autocast rules has each op once.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "gradus/gradus.h"

namespace gradus {
namespace {

struct AmpPage : testing::Test {
  nn::Linear net{{.in = 8, .out = 3}};
  Tensor x = randn({4, 8}), target = tensor(std::vector<int64_t>{0, 2, 1, 0}, {4});
  GradManager gm;
  optim::SGD opt{net.parameters(), {.lr = 0.1}};
  AmpPage() { gm.attach(net.parameters()); }
};

TEST_F(AmpPage, Scope) {
  const auto before = net.weight.to_vector<float>();
  {
    auto recording = gm.record();
    Tensor loss;
    {
      auto amp = autocast(DType::kBF16);
      loss = nn::cross_entropy(net(x), target);
    }
    gm.backward(loss);  // gradients arrive in f32
    opt.step().clear_grad();
  }
  EXPECT_NE(net.weight.to_vector<float>(), before);
}

TEST_F(AmpPage, Scaler) {
  const auto before = net.weight.to_vector<float>();
  optim::GradScaler scaler;
  for (int i = 0; i < 3; ++i) {
    auto recording = gm.record();
    Tensor loss;
    {
      auto amp = autocast(DType::kF16);
      loss = nn::cross_entropy(net(x), target);
    }
    scaler.backward(gm, loss);             // gradients of scale() times the loss
    scaler.step(opt, {.clip_norm = 1.0});  // divides, clips, and steps or skips
    opt.clear_grad();
  }
  EXPECT_NE(net.weight.to_vector<float>(), before);
}

TEST_F(AmpPage, Agreement) {
  optim::GradScaler scaler({.agree = [](bool found) { return dist::any_rank(found); }});
  auto recording = gm.record();
  scaler.backward(gm, sum(net(x)));
  EXPECT_TRUE(scaler.step(opt));
}

TEST(CastRules, NameEachOpOnce) {
  std::set<std::string> ops;
  for (const autograd::CastRule& rule : autograd::kCastRules)
    EXPECT_TRUE(ops.insert(std::string(rule.op)).second) << rule.op;
}

}  // namespace
}  // namespace gradus
