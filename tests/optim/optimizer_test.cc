// Optimizers: their formulas step by step, groups, state, and what they refuse. Long trajectories against
// PyTorch are in tests/golden.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

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
double gradient(double p, int t) { return 0.5 * p + std::sin(3 * p + t); }

// Steps `opt` over p with gradient() and compares with `update(p, g, t)`, the formula for one element.
void follow(Optimizer& opt, const Tensor& p,
            std::function<double(double p, double g, int t, size_t i)> update) {
  for (int t = 1; t <= 5; ++t) {
    std::vector<double> expected = values(p), g;
    for (double v : expected) g.push_back(gradient(v, t));
    for (size_t i = 0; i < g.size(); ++i) expected[i] = update(expected[i], g[i], t, i);
    p.set_grad(f64(g));
    opt.step().clear_grad();
    EXPECT_FALSE(p.grad().defined());
    const std::vector<double> now = values(p);
    for (size_t i = 0; i < g.size(); ++i)
      EXPECT_NEAR(now[i], expected[i], 1e-13) << "step " << t << " element " << i;
  }
}

TEST(SGD, FollowsItsFormula) {
  const Tensor p = f64({1, -2, 0.5});
  SGD opt({p}, {.lr = 0.1, .weight_decay = 0.2});
  follow(opt, p, [](double p, double g, int, size_t) { return p - 0.1 * (g + 0.2 * p); });
}

TEST(SGD, WithMomentumDampeningAndNesterov) {
  std::vector<double> b(3);
  const Tensor p = f64({1, -2, 0.5}), q = f64({1, -2, 0.5});
  SGD damped({p}, {.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .maximize = true});
  follow(damped, p, [&](double p, double g, int t, size_t i) {
    b[i] = t == 1 ? -g : 0.9 * b[i] + 0.7 * -g;
    return p - 0.1 * b[i];
  });
  SGD nesterov({q}, {.lr = 0.1, .momentum = 0.9, .nesterov = true});
  follow(nesterov, q, [&](double p, double g, int t, size_t i) {
    b[i] = t == 1 ? g : 0.9 * b[i] + g;
    return p - 0.1 * (g + 0.9 * b[i]);
  });
}

TEST(Adam, FollowsItsFormulaAlsoWithAmsgrad) {
  for (bool amsgrad : {false, true}) {
    std::vector<double> m(3), v(3), top(3);
    const Tensor p = f64({1, -2, 0.5});
    Adam opt({p}, {.lr = 0.1, .betas = {0.8, 0.9}, .weight_decay = 0.1, .amsgrad = amsgrad});
    follow(opt, p, [&](double p, double g, int t, size_t i) {
      g += 0.1 * p;
      m[i] = 0.8 * m[i] + 0.2 * g;
      v[i] = 0.9 * v[i] + 0.1 * g * g;
      top[i] = std::max(top[i], v[i]);
      const double second = (amsgrad ? top[i] : v[i]) / (1 - std::pow(0.9, t));
      return p - 0.1 * m[i] / (1 - std::pow(0.8, t)) / (std::sqrt(second) + 1e-8);
    });
  }
}

TEST(AdamW, ShrinksTheParameterItself) {
  std::vector<double> m(3), v(3);
  const Tensor p = f64({1, -2, 0.5});
  AdamW opt({p}, {.lr = 0.1});
  follow(opt, p, [&](double p, double g, int t, size_t i) {
    m[i] = 0.9 * m[i] + 0.1 * g;
    v[i] = 0.999 * v[i] + 0.001 * g * g;
    const double second = v[i] / (1 - std::pow(0.999, t));
    return p * (1 - 0.1 * 0.01) - 0.1 * m[i] / (1 - std::pow(0.9, t)) / (std::sqrt(second) + 1e-8);
  });
}

TEST(Adadelta, FollowsItsFormula) {
  std::vector<double> v(3), u(3);
  const Tensor p = f64({1, -2, 0.5});
  Adadelta opt({p}, {.lr = 0.7, .weight_decay = 0.1});
  follow(opt, p, [&](double p, double g, int, size_t i) {
    g += 0.1 * p;
    v[i] = 0.9 * v[i] + 0.1 * g * g;
    const double d = std::sqrt(u[i] + 1e-6) / std::sqrt(v[i] + 1e-6) * g;
    u[i] = 0.9 * u[i] + 0.1 * d * d;
    return p - 0.7 * d;
  });
}

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

TEST(Optimizer, SkipsParametersWithoutGradient) {
  const Tensor a = f64({1}), b = f64({1});
  Adam opt({a, b}, {.lr = 0.1});
  a.set_grad(f64({1}));
  opt.step();
  EXPECT_NEAR(values(a)[0], 0.9, 1e-6);
  EXPECT_EQ(values(b)[0], 1);
  const State state = opt.state_dict();
  EXPECT_EQ(state.tensors.size(), 2u);  // of a alone
  EXPECT_EQ(state.tensors[0].first, "state.0.exp_avg");
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

TEST(Optimizer, StepsParametersInOtherLayouts) {
  const Tensor p = empty_channels_last({1, 2, 1, 2}, {.dtype = DType::kF64});
  raw::copy_(p, tensor(std::vector<double>{1, 2, 3, 4}, {1, 2, 1, 2}));
  ASSERT_FALSE(p.is_row_major());
  SGD opt({p}, {.lr = 1.0});
  p.set_grad(tensor(std::vector<double>{1, 1, 2, 2}, {1, 2, 1, 2}));
  opt.step();
  EXPECT_THAT(values(p), ElementsAre(0, 1, 1, 2));
}

TEST(Optimizer, WorksOnAnAsynchronousDevice) {
  const Device second{DeviceType::kCPU, 1};
  const Tensor p = raw::to(f64({1, 2}), second);
  Adam opt({p}, {.lr = 0.1});
  for (int t = 0; t < 3; ++t) {
    p.set_grad(raw::to(f64({1, -1}), second));
    opt.step();
  }
  EXPECT_NEAR(values(p)[0], 0.7, 1e-6);
  EXPECT_NEAR(values(p)[1], 2.3, 1e-6);
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

// Puts a gradient past the check of set_grad.
void force_grad(const Tensor& p, const Tensor& grad) { autograd::leaf_of(p)->grad = grad; }

TEST(Optimizer, RefusesAGradientThatDoesNotFit) {
  const Tensor p = f64({1, 2});
  SGD opt({p}, {.lr = 0.1});
  force_grad(p, f64({1, 2, 3}));
  EXPECT_THROW(opt.step(), ShapeError);
  force_grad(p, tensor({1.f, 2.f}));
  EXPECT_THROW(opt.step(), DTypeError);
  EXPECT_THAT(values(p), ElementsAre(1, 2));
  // Nor is a group changed that comes before the mistake.
  const Tensor q = f64({3});
  SGD two({q}, {.lr = 0.1});
  two.add_param_group({p}, {.lr = 0.1});
  q.set_grad(f64({1}));
  EXPECT_THROW(two.step(), DTypeError);
  EXPECT_THAT(values(q), ElementsAre(3));
}

template <class O> void continues_exactly(const std::function<std::unique_ptr<O>(const Tensor&)>& make) {
  const auto step = [](Optimizer& opt, const Tensor& p, int t) {
    std::vector<double> g;
    for (double v : values(p)) g.push_back(gradient(v, t));
    p.set_grad(f64(g));
    opt.step();
  };
  const Tensor straight = f64({1, -2, 0.5});
  const auto a = make(straight);
  for (int t = 0; t < 4; ++t) step(*a, straight, t);
  const Tensor resumed = raw::clone(straight);
  const auto b = make(resumed);
  b->load_state_dict(a->state_dict());
  for (int t = 4; t < 8; ++t) step(*a, straight, t), step(*b, resumed, t);
  EXPECT_EQ(values(resumed), values(straight));
}

TEST(OptimizerState, ContinuesExactly) {
  continues_exactly<SGD>([](const Tensor& p) {
    return std::make_unique<SGD>(std::vector<Tensor>{p},
                                 SGDOptions{.lr = 0.1, .momentum = 0.9, .dampening = 0.5});
  });
  continues_exactly<Adam>([](const Tensor& p) {
    return std::make_unique<Adam>(std::vector<Tensor>{p}, AdamOptions{.lr = 0.1, .amsgrad = true});
  });
  continues_exactly<AdamW>([](const Tensor& p) { return std::make_unique<AdamW>(std::vector<Tensor>{p}); });
  continues_exactly<Adadelta>(
      [](const Tensor& p) { return std::make_unique<Adadelta>(std::vector<Tensor>{p}); });
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
