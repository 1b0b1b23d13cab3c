// The examples of docs/amp.md, and its lists of ops against the table that ops cast by.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>

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

// The ops of the row of the page's table that starts with `| what |`.
std::set<std::string> listed(const std::string& what) {
  std::ifstream page("docs/amp.md");
  std::set<std::string> ops;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| " + what + " |")) continue;
    const std::regex name("`(\\w+)`");
    for (std::sregex_iterator m(line.begin(), line.end(), name), end; m != end; ++m) ops.insert((*m)[1]);
  }
  return ops;
}

TEST(AmpPageLists, AreWhatOpsCastBy) {
  std::map<autograd::CastPolicy, std::set<std::string>> rules;
  for (const autograd::CastRule& rule : autograd::kCastRules)
    EXPECT_TRUE(rules[rule.policy].insert(std::string(rule.op)).second) << rule.op << " is there twice";
  EXPECT_EQ(listed("the scope's dtype"), rules[autograd::CastPolicy::kLow]);
  EXPECT_EQ(listed("f32"), rules[autograd::CastPolicy::kF32]);
  EXPECT_EQ(listed("the widest dtype among them"), rules[autograd::CastPolicy::kWidest]);
}

}  // namespace
}  // namespace gradus
