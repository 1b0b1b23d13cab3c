// Optimizers: parameter groups, state, errors, and f32 master weights of bf16 parameters. tests/golden
// compares the steps with PyTorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/node.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/optim/optim.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/support/error.h"

namespace gradus::optim {
namespace {

using testing::ElementsAre;

Tensor f64(std::vector<double> v) { return tensor(v, {int64_t(v.size())}); }
std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }

TEST(Optimizer, ManyParametersOfAllSizesOnAnyNumberOfThreads) {
  const auto train = [](int threads) {
    set_num_threads(threads);
    std::vector<Tensor> params;
    for (int64_t n : {1, 0, 70000, 3, 16384, 5}) {
      std::vector<float> v;
      for (int64_t i = 0; i < n; ++i) v.push_back(std::sin(float(i)));
      params.push_back(tensor(v, {n}));
    }
    Adadelta opt(params);
    for (int t = 0; t < 3; ++t) {
      for (const Tensor& p : params) p.set_grad(raw::clone(p));
      opt.step();
    }
    std::vector<float> all;
    for (const Tensor& p : params)
      for (float v : p.to_vector<float>()) all.push_back(v);
    return all;
  };
  const std::vector<float> one = train(1), two = train(2);
  ASSERT_EQ(one.size(), two.size());
  for (size_t i = 0; i < one.size(); ++i) ASSERT_EQ(one[i], two[i]) << i;
  EXPECT_NE(one[2], std::sin(1.f));
}

TEST(Optimizer, GroupsHaveTheirOwnOptions) {
  const Tensor a = f64({1}), b = f64({1});
  SGD opt({a}, {.lr = 0.1});
  opt.add_param_group({b}, {.lr = 0.5, .momentum = 0.9});
  a.set_grad(f64({1}));
  b.set_grad(f64({1}));
  opt.step();
  EXPECT_DOUBLE_EQ(values(a)[0], 0.9);
  EXPECT_DOUBLE_EQ(values(b)[0], 0.5);
  opt.set_lr(1, 1.0);
  EXPECT_EQ(opt.lr(0), 0.1);
  EXPECT_EQ(opt.lr(1), 1.0);
  opt.set_lr(0.25);
  EXPECT_EQ(opt.lr(1), 0.25);
  EXPECT_THROW(opt.lr(2), IndexError);
  EXPECT_EQ(opt.parameters().size(), 2u);
}

TEST(Optimizer, KeepsTheParametersIdentityAndBumpsItsVersion) {
  const Tensor p = f64({1});
  const auto storage = p.storage();
  const uint32_t version = storage->version();
  SGD opt({p}, {.lr = 0.1});
  p.set_grad(f64({1}));
  opt.step();
  EXPECT_TRUE(p.storage() == storage);
  EXPECT_GT(storage->version(), version);
}

TEST(Optimizer, StepsInsideAScopeWhoseBackwardIsDoneButNotBefore) {
  const Tensor p = f64({2});
  GradManager gm;
  gm.attach(p);
  SGD opt({p}, {.lr = 0.1});
  auto recording = gm.record();
  gm.backward(p * p);
  opt.step();
  EXPECT_DOUBLE_EQ(values(p)[0], 1.6);
  auto next = gm.record();
  EXPECT_THROW(opt.step(), StateError);
  EXPECT_DOUBLE_EQ(values(p)[0], 1.6);
}

TEST(Optimizer, RefusesOptionsOutOfTheirDomain) {
  const Tensor p = f64({1});
  EXPECT_THROW(SGD({p}, {.lr = -1.0}), ValueError);
  EXPECT_THROW(SGD({p}, {.lr = 1.0, .nesterov = true}), ValueError);
  EXPECT_THROW(SGD({p}, {.lr = 1.0, .momentum = 0.9, .dampening = 0.1, .nesterov = true}), ValueError);
  EXPECT_THROW(Adam({p}, {.betas = {1.0, 0.999}}), ValueError);
  EXPECT_THROW(Adadelta({p}, {.rho = 1.5}), ValueError);
  EXPECT_THROW(SGD({}, {.lr = 1.0}), ValueError);
  EXPECT_THROW(SGD({p, p}, {.lr = 1.0}), ValueError);
  EXPECT_THROW(SGD({Tensor()}, {.lr = 1.0}), ValueError);
  EXPECT_THROW(SGD({tensor({1, 2})}, {.lr = 1.0}), DTypeError);
}

// Sets a gradient without set_grad's checks.
void force_grad(const Tensor& p, const Tensor& grad) { autograd::leaf_of(p)->grad = grad; }

TEST(Optimizer, RefusesAGradientThatDoesNotFit) {
  const Tensor p = f64({1, 2});
  SGD opt({p}, {.lr = 0.1});
  force_grad(p, f64({1, 2, 3}));
  EXPECT_THROW(opt.step(), ShapeError);
  force_grad(p, tensor({1.f, 2.f}));
  EXPECT_THROW(opt.step(), DTypeError);
  EXPECT_THAT(values(p), ElementsAre(1, 2));
  // A group before the faulty one is not changed either.
  const Tensor q = f64({3});
  SGD two({q}, {.lr = 0.1});
  two.add_param_group({p}, {.lr = 0.1});
  q.set_grad(f64({1}));
  EXPECT_THROW(two.step(), DTypeError);
  EXPECT_THAT(values(q), ElementsAre(3));
}

TEST(OptimizerState, BringsTheOptionsBack) {
  const Tensor p = f64({1});
  SGD a({p}, {.lr = 0.3, .momentum = 0.9, .nesterov = true});
  SGD b({f64({1})}, {.lr = 0.1});
  b.load_state_dict(a.state_dict());
  EXPECT_EQ(b.lr(), 0.3);
  EXPECT_EQ(b.options().momentum, 0.9);
  EXPECT_TRUE(b.options().nesterov);
}

TEST(OptimizerState, ListsWhatDoesNotFitAndChangesNothing) {
  const Tensor p = f64({1, 2});
  Adam opt({p}, {.lr = 0.1});
  p.set_grad(f64({1, 1}));
  opt.step();
  const State good = opt.state_dict();

  State bad = good;
  bad.tensors[0].second = f64({1, 2, 3});
  bad.tensors.emplace_back("state.7.exp_avg", f64({1}));
  bad.numbers.emplace_back("group.5.lr", 1.0);
  for (auto& [name, v] : bad.numbers)
    if (name == "group.0.lr") v = 99;
  std::erase_if(bad.tensors, [](const auto& t) { return t.first == "state.0.exp_avg_sq"; });
  EXPECT_ERROR(ValueError, opt.load_state_dict(bad), "does not fit this Adam",
               "state.0.exp_avg: expected the shape of f64[2] cpu, got f64[3] cpu",
               "missing: state.0.exp_avg_sq", "unexpected: state.7.exp_avg", "unexpected: group.5.lr");
  EXPECT_EQ(opt.lr(), 0.1);
  EXPECT_EQ(values(opt.state_dict().tensors[0].second), values(good.tensors[0].second));

  EXPECT_THROW(opt.load_state_dict({}), ValueError);
  EXPECT_THROW(opt.load_state_dict(SGD({f64({1, 2})}, {.lr = 1.0}).state_dict()), ValueError);
  EXPECT_THROW(opt.load_state_dict(Adam({f64({1}), f64({1})}).state_dict()), ValueError);
  State negative = good;
  for (auto& [name, v] : negative.numbers)
    if (name == "state.0.step") v = -3;
  EXPECT_THROW(opt.load_state_dict(negative), ValueError);
  opt.load_state_dict(good);
}

// --- master weights ---

struct MasterWeights : testing::Test {
  Tensor w = ones({2}, {.dtype = DType::kBF16});
  void step(Optimizer& opt, double g) {
    w.set_grad(full({2}, g, {.dtype = DType::kBF16}));
    opt.step().clear_grad();
  }
  double value() const { return w.to_vector<double>()[0]; }
};

TEST_F(MasterWeights, StepsTooSmallForBf16AddUp) {
  SGD plain({w}, {.lr = 0.001});
  for (int i = 0; i < 100; ++i) step(plain, 1);
  EXPECT_EQ(value(), 1);
  SGD opt({w}, {.lr = 0.001});
  opt.keep_master_weights();
  for (int i = 0; i < 100; ++i) step(opt, 1);
  EXPECT_NEAR(value(), 0.9, 0x1p-9);
}

TEST_F(MasterWeights, OfAdamAreThoseOfAnF32Parameter) {
  const Tensor wide = ones({2});
  Adam opt({w}, {.lr = 1e-3}), reference({wide}, {.lr = 1e-3});
  opt.keep_master_weights();
  for (int i = 0; i < 20; ++i) {
    step(opt, 0.5);
    wide.set_grad(full({2}, 0.5));
    reference.step().clear_grad();
  }
  for (const auto& [name, t] : opt.state_dict().tensors)
    if (name == "state.0.master") {
      EXPECT_EQ(t.to_vector<float>(), wide.to_vector<float>());
      return;
    }
  FAIL() << "no state.0.master";
}

TEST_F(MasterWeights, SurviveACheckpointWhateverIsLoadedFirst) {
  SGD opt({w}, {.lr = 0.001, .momentum = 0.9});
  opt.keep_master_weights();
  for (int i = 0; i < 30; ++i) step(opt, 1);
  const Tensor saved = raw::clone(w);
  const State state = opt.state_dict();
  SGD resumed({w}, {.lr = 0.001, .momentum = 0.9});
  resumed.keep_master_weights();
  resumed.load_state_dict(state);
  raw::copy_(w, saved);
  for (int i = 0; i < 30; ++i) step(resumed, 1);
  const auto after = w.to_vector<float>();
  raw::copy_(w, saved);
  SGD other({w}, {.lr = 0.001, .momentum = 0.9});
  other.keep_master_weights().load_state_dict(state);
  for (int i = 0; i < 30; ++i) step(other, 1);
  EXPECT_EQ(w.to_vector<float>(), after);
  SGD without({w}, {.lr = 0.001, .momentum = 0.9});
  EXPECT_THROW(without.load_state_dict(state), ValueError);
}

TEST_F(MasterWeights, FollowAParameterThatIsWrittenTo) {
  SGD opt({w}, {.lr = 0.001});
  opt.keep_master_weights();
  step(opt, 1);
  raw::fill_(w, 4);
  step(opt, 1);
  EXPECT_EQ(value(), 4);
}

TEST_F(MasterWeights, OfF32ParametersThereAreNone) {
  const Tensor wide = ones({2});
  SGD opt({wide}, {.lr = 0.5});
  opt.keep_master_weights();
  wide.set_grad(ones({2}));
  opt.step();
  EXPECT_EQ(wide.to_vector<float>()[0], 0.5f);
  EXPECT_TRUE(opt.state_dict().tensors.empty());
}

}  // namespace
}  // namespace gradus::optim
