// GradScaler: growth and backoff of the scale, skipped steps, accumulation, clipping, state; optimizers and
// clipping refuse gradients that are still scaled.
#include "gradus/optim/grad_scaler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/autocast.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/optim/clip_grad.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tensor/runtime/parallel.h"
#include "gradus/tests/support/error.h"

namespace gradus::optim {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();

Tensor values32(const std::vector<float>& v) { return tensor(v, {int64_t(v.size())}); }

struct GradScalerTest : testing::Test {
  Tensor w = values32({1.0f, 2.0f});
  GradManager gm;
  SGD opt{{w}, {.lr = 0.5}};
  GradScalerTest() { gm.attach(w); }

  // Scaled backward of sum(w * g), whose gradient is g.
  void backward(GradScaler& scaler, std::vector<float> g) {
    auto recording = gm.record();
    scaler.backward(gm, sum(w * values32(g)));
  }
  std::vector<float> grad() const { return w.grad().to_vector<float>(); }
  std::vector<float> values() const { return w.to_vector<float>(); }
  // Backward and one step; returns whether the optimizer stepped.
  bool step(GradScaler& scaler, std::vector<float> g, ScaledStepOptions options = {}) {
    backward(scaler, std::move(g));
    const bool stepped = scaler.step(opt, options);
    opt.clear_grad();
    return stepped;
  }
};

TEST_F(GradScalerTest, ScalesGradientsAndStepsByTrueOnes) {
  GradScaler scaler({.init_scale = 8});
  backward(scaler, {1, 3});
  EXPECT_THAT(grad(), ElementsAre(8, 24));
  EXPECT_TRUE(scaler.step(opt));
  EXPECT_THAT(grad(), ElementsAre(1, 3));
  EXPECT_THAT(values(), ElementsAre(0.5, 0.5));
}

TEST_F(GradScalerTest, SkipsAStepWithAnInfinityOrNaNAndBacksOff) {
  for (const float bad : {kInf, -kInf, std::nanf("")}) {
    GradScaler scaler({.init_scale = 8});
    EXPECT_FALSE(step(scaler, {1, bad}));
    EXPECT_THAT(values(), ElementsAre(1, 2));
    EXPECT_EQ(scaler.scale(), 4);
    EXPECT_EQ(scaler.skipped_steps(), 1);
  }
}

TEST_F(GradScalerTest, GrowsAfterAnIntervalOfCleanSteps) {
  GradScaler scaler({.init_scale = 8, .growth_interval = 2});
  EXPECT_TRUE(step(scaler, {0, 0}));
  EXPECT_EQ(scaler.scale(), 8);
  EXPECT_FALSE(step(scaler, {kInf, 0}));  // resets the count of clean steps
  EXPECT_TRUE(step(scaler, {0, 0}));
  EXPECT_EQ(scaler.scale(), 4);
  EXPECT_TRUE(step(scaler, {0, 0}));
  EXPECT_EQ(scaler.scale(), 8);
}

TEST_F(GradScalerTest, DoesNotGrowBeyondF32) {
  GradScaler scaler({.init_scale = 0x1p127, .growth_interval = 1});
  EXPECT_TRUE(step(scaler, {0, 0}));
  EXPECT_EQ(scaler.scale(), 0x1p127);
}

TEST_F(GradScalerTest, ClipsTrueGradients) {
  GradScaler scaler({.init_scale = 1024});
  EXPECT_TRUE(step(scaler, {3, 4}, {.clip_norm = 1}));
  EXPECT_EQ(scaler.grad_norm().item<double>(), 5);
  EXPECT_NEAR(values()[0], 1 - 0.3, 1e-6);
  EXPECT_TRUE(step(scaler, {3, -4}, {.clip_value = 0.5}));
  EXPECT_NEAR(values()[1], 2 - 0.4 + 0.25, 1e-6);
}

TEST_F(GradScalerTest, ScaledGradientsAreRefusedByClippingAndOptimizers) {
  GradScaler scaler({.init_scale = 8});
  backward(scaler, {1, 3});
  const auto refuses = AllOf(HasSubstr("GradScaler has multiplied by 8"), HasSubstr("scaler.step(opt"));
  EXPECT_THAT(error_of<StateError>([&] { clip_grad_norm_({w}, 1); }), refuses);
  EXPECT_THAT(error_of<StateError>([&] { clip_grad_value_({w}, 1); }), refuses);
  EXPECT_THAT(error_of<StateError>([&] { opt.step(); }), refuses);
  EXPECT_THAT(grad(), ElementsAre(8, 24));
  EXPECT_THAT(values(), ElementsAre(1, 2));
}

TEST_F(GradScalerTest, UnscaledGradientsMayBeClippedInOtherWays) {
  GradScaler scaler({.init_scale = 8});
  backward(scaler, {1, 3});
  scaler.unscale_(opt);
  EXPECT_THAT(grad(), ElementsAre(1, 3));
  EXPECT_ERROR(StateError, scaler.unscale_(opt), "since its last step");
  clip_grad_value_({w}, 1);
  EXPECT_TRUE(scaler.step(opt));
  EXPECT_THAT(values(), ElementsAre(0.5, 1.5));
}

TEST_F(GradScalerTest, AnInfinityFoundByUnscaleSkipsTheStep) {
  GradScaler scaler({.init_scale = 8});
  backward(scaler, {kInf, 3});
  scaler.unscale_(opt);
  w.set_grad(values32({1.0f, 1.0f}));  // finite, but unscale_ has found the infinity
  EXPECT_FALSE(scaler.step(opt));
}

TEST_F(GradScalerTest, GradientsThatWereReplacedAreRefused) {
  GradScaler scaler({.init_scale = 8});
  backward(scaler, {1, 3});
  w.set_grad(w.grad() * 2.0);
  EXPECT_ERROR(StateError, scaler.step(opt), "does not come from scaler.backward");
}

TEST_F(GradScalerTest, AccumulatesOverBackwards) {
  GradScaler scaler({.init_scale = 8});
  backward(scaler, {1, 3});
  backward(scaler, {1, -1});
  EXPECT_TRUE(scaler.step(opt));
  EXPECT_THAT(grad(), ElementsAre(2, 2));
}

TEST_F(GradScalerTest, AnInfinityOfAnEarlierBackwardCounts) {
  GradScaler scaler({.init_scale = 8});
  backward(scaler, {kInf, 3});
  backward(scaler, {1, -1});
  EXPECT_FALSE(scaler.step(opt));
}

TEST_F(GradScalerTest, ScaledAndUnscaledGradientsDoNotMix) {
  GradScaler scaler({.init_scale = 8});
  {
    auto recording = gm.record();
    gm.backward(sum(w));
  }
  EXPECT_ERROR(StateError, backward(scaler, {1, 1}), "not scaled", "clear_grad()");
  opt.clear_grad();
  backward(scaler, {1, 3});
  {
    auto recording = gm.record();
    gm.backward(sum(w));
  }
  EXPECT_ERROR(StateError, scaler.step(opt), "was changed");
  EXPECT_ERROR(StateError, backward(scaler, {1, 1}), "was changed");
  opt.clear_grad();
  backward(scaler, {1, 3});
  EXPECT_TRUE(scaler.step(opt));
  EXPECT_ERROR(StateError, backward(scaler, {1, 1}), "clear_grad()");
}

// As in a GAN with one manager: gradients of one network remain, stepped and not cleared, while those of the
// other are computed.
TEST_F(GradScalerTest, GradientsThatALossDoesNotReachAreLeftAlone) {
  const Tensor other = values32({1.f});
  gm.attach(other);
  SGD opt_other({other}, {.lr = 1});
  GradScaler scaler({.init_scale = 8});
  backward(scaler, {1, 3});
  EXPECT_TRUE(scaler.step(opt));
  {
    auto recording = gm.record();
    scaler.backward(gm, sum(other));
  }
  EXPECT_TRUE(scaler.step(opt_other));
  EXPECT_THAT(grad(), ElementsAre(1, 3));
}

// The step of another network may change the scale between two backwards of this one.
TEST_F(GradScalerTest, GradientsOfAnotherScaleAreBroughtToTheNewOne) {
  const Tensor other = values32({1.0f});
  gm.attach(other);
  SGD opt_other({other}, {.lr = 1});
  GradScaler scaler({.init_scale = 8});
  backward(scaler, {1, 3});
  {
    auto recording = gm.record();
    scaler.backward(gm, sum(other) * kInf);
  }
  EXPECT_FALSE(scaler.step(opt_other));
  opt_other.clear_grad();
  backward(scaler, {1, 1});
  EXPECT_THAT(grad(), ElementsAre(8, 16));  // 4 (1 + 1), 4 (3 + 1)
  EXPECT_TRUE(scaler.step(opt));
  EXPECT_THAT(grad(), ElementsAre(2, 4));
}

TEST_F(GradScalerTest, SeveralOptimizersShareOneUpdateOfTheScale) {
  const Tensor other = values32({1.0f});
  gm.attach(other);
  SGD opt_other({other}, {.lr = 1});
  GradScaler scaler({.init_scale = 8, .growth_interval = 1});
  {
    auto recording = gm.record();
    scaler.backward(gm, sum(w) + sum(other) * kInf);
  }
  EXPECT_TRUE(scaler.step(opt));
  EXPECT_FALSE(scaler.step(opt_other));
  EXPECT_EQ(scaler.scale(), 4);
  EXPECT_EQ(scaler.skipped_steps(), 1);
}

TEST_F(GradScalerTest, ParametersWithoutAGradientAreLeftOutButOneMustHaveOne) {
  const Tensor idle = values32({1.0f});
  SGD both({w, idle}, {.lr = 0.5}), none({idle}, {.lr = 1});
  GradScaler scaler({.init_scale = 8});
  backward(scaler, {1, 3});
  EXPECT_TRUE(scaler.step(both));
  EXPECT_EQ(idle.item<float>(), 1);
  EXPECT_ERROR(StateError, scaler.step(none), "none of the optimizer's 1 parameters has a gradient");
}

TEST_F(GradScalerTest, ADisabledOneOnlyClipsAndSteps) {
  GradScaler scaler({.enabled = false});
  backward(scaler, {3, 4});
  EXPECT_THAT(grad(), ElementsAre(3, 4));
  EXPECT_EQ(scaler.scale(), 1);
  scaler.unscale_(opt);
  EXPECT_TRUE(scaler.step(opt, {.clip_norm = 1}));
  EXPECT_NEAR(values()[0], 1 - 0.3, 1e-6);
}

TEST_F(GradScalerTest, TakesADy) {
  GradScaler scaler({.init_scale = 8});
  auto recording = gm.record();
  const Tensor y = w * 1.0;
  scaler.backward(gm, y, values32({0.5f, 2.0f}));
  EXPECT_THAT(grad(), ElementsAre(4, 16));
  auto again = gm.record();
  EXPECT_ERROR(ShapeError, scaler.backward(gm, w * 1.0), "one element");
}

TEST_F(GradScalerTest, SaysSoWhenNoScaleHelps) {
  GradScaler scaler({.init_scale = 1});
  const std::string text = error_of<StateError>([&] {
    for (int i = 0; i < 200; ++i) step(scaler, {std::nanf(""), 0});
  });
  EXPECT_THAT(text, HasSubstr("127 skipped steps"));
}

TEST_F(GradScalerTest, GradientsInF16AreRefused) {
  const Tensor half = zeros({2}, {.dtype = DType::kF16});
  gm.attach(half);
  SGD opt_half({half}, {.lr = 1});
  GradScaler scaler({.init_scale = 8});
  auto recording = gm.record();
  scaler.backward(gm, sum(half));
  EXPECT_ERROR(DTypeError, scaler.step(opt_half), "keep parameters in f32");
}

// What scaling is for: a gradient of 1e-8 is 0 in f16.
TEST_F(GradScalerTest, KeepsSmallGradientsThroughF16) {
  const Tensor x = full({1, 2}, 1.0), v = full({1, 2}, 1.0);
  gm.attach(v);
  const auto gradient = [&](GradScaler& scaler) {
    SGD opt_v({v}, {.lr = 0});
    auto recording = gm.record();
    const Tensor loss = [&] {
      auto amp = autocast(DType::kF16);
      return sum(linear(x, v)) * 1e-8;  // too small for the gradient of an f16 activation
    }();
    scaler.backward(gm, loss);
    EXPECT_TRUE(scaler.step(opt_v));
    const float g = v.grad().to_vector<float>()[0];
    opt_v.clear_grad();
    opt.clear_grad();
    return g;
  };
  GradScaler off({.enabled = false}), on;
  EXPECT_EQ(gradient(off), 0);
  EXPECT_NEAR(gradient(on), 1e-8, 1e-10);
}

TEST_F(GradScalerTest, StateGoesOnWhereItWas) {
  GradScaler scaler({.init_scale = 8, .growth_interval = 3});
  step(scaler, {kInf, 0});
  step(scaler, {0, 0});
  step(scaler, {0, 0});
  GradScaler resumed;
  resumed.load_state_dict(scaler.state_dict());
  EXPECT_EQ(resumed.scale(), 4);
  EXPECT_EQ(resumed.skipped_steps(), 1);
  step(resumed, {0, 0});
  EXPECT_EQ(resumed.scale(), 8);
}

TEST_F(GradScalerTest, AStateThatDoesNotFitChangesNothing) {
  GradScaler scaler({.init_scale = 8});
  // numbers: scale, growth_factor, backoff_factor, growth_interval, growth_tracker, ...
  const auto loading = [&](auto change) {
    State state = scaler.state_dict();
    change(state.numbers);
    return error_of<ValueError>([&] { scaler.load_state_dict(state); });
  };
  EXPECT_THAT(loading([](auto& n) { n[0].first = "loss_scale"; }),
              AllOf(HasSubstr("missing: scale"), HasSubstr("unexpected: loss_scale")));
  EXPECT_THAT(loading([](auto& n) { n[0].second = -1; }), HasSubstr("init_scale"));
  EXPECT_THAT(loading([](auto& n) { n[0].second = std::nanf(""); }), HasSubstr("init_scale"));
  EXPECT_THAT(loading([](auto& n) { n[3].second = 0; }), HasSubstr("growth_interval"));
  EXPECT_THAT(loading([](auto& n) { n[4].second = 1e300; }), HasSubstr("growth_tracker"));
  EXPECT_EQ(scaler.scale(), 8);
}

TEST_F(GradScalerTest, RefusesOptionsOutOfRange) {
  EXPECT_ERROR(ValueError, GradScaler({.init_scale = 0}), "init_scale");
  EXPECT_ERROR(ValueError, GradScaler({.init_scale = kInf}), "init_scale");
  EXPECT_ERROR(ValueError, GradScaler({.growth_factor = 1}), "growth_factor");
  EXPECT_ERROR(ValueError, GradScaler({.backoff_factor = 1}), "backoff_factor");
  EXPECT_ERROR(ValueError, GradScaler({.growth_interval = 0}), "growth_interval");
  GradScaler scaler;
  EXPECT_ERROR(ValueError, scaler.step(opt, {.clip_norm = -1}), "clip_norm");
}

TEST_F(GradScalerTest, AsksOtherRanksOnceAStep) {
  std::vector<bool> asked;
  GradScaler scaler({.init_scale = 8, .agree = [&](bool found) {
                       asked.push_back(found);
                       return true;  // another rank found one
                     }});
  EXPECT_FALSE(step(scaler, {0, 0}));
  EXPECT_THAT(asked, ElementsAre(false));
  EXPECT_EQ(scaler.scale(), 4);
}

// A pipeline stage: the loss is on another rank, and a callback sets the gradients of a loss times `scale`.
TEST_F(GradScalerTest, ScalesAPartOfAModel) {
  GradScaler scaler({.init_scale = 8});
  scaler.backward_of_part({w}, [&](double scale) { w.set_grad(values32({float(scale), 2 * float(scale)})); });
  EXPECT_THAT(grad(), ElementsAre(8, 16));
  EXPECT_THROW(opt.step(), StateError);
  EXPECT_ERROR(StateError, scaler.step(opt, {.clip_norm = 1.0}), "clip by the norm of all parts");
  EXPECT_TRUE(scaler.step(opt));
  EXPECT_THAT(values(), ElementsAre(0.5f, 1.0f));

  GradScaler off({.enabled = false});
  off.backward_of_part({w}, [&](double scale) { EXPECT_EQ(scale, 1); });
}

// A scaler may serve both a pipeline stage and a whole model.
TEST_F(GradScalerTest, ClipsAWholeModelAlsoAfterAPartOfOne) {
  GradScaler scaler({.init_scale = 8});
  const auto backward_of_part = [&] {
    scaler.backward_of_part({w}, [&](double scale) { w.set_grad(values32({float(scale), 0})); });
  };
  backward_of_part();
  scaler.step(opt);
  opt.clear_grad();
  EXPECT_TRUE(step(scaler, {3, 4}, {.clip_norm = 1.0}));
  EXPECT_FLOAT_EQ(scaler.grad_norm().item<float>(), 5);

  // The backward of another model does not make this one whole.
  backward_of_part();
  const Tensor v = values32({1.0f});
  GradManager other;
  other.attach(v);
  {
    auto recording = other.record();
    scaler.backward(other, sum(v));
  }
  EXPECT_THROW(scaler.step(opt, {.clip_norm = 1.0}), StateError);
}

TEST(Unscale, FindsASingleInfinityInAnyDtypeWhateverTheThreads) {
  for (const DType t : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    for (const int threads : {1, 3}) {
      set_num_threads(threads);
      const Tensor small = ones({3}, {.dtype = t}), large = ones({100'003}, {.dtype = t});
      EXPECT_EQ(raw::unscale_({small, large}, 0.5).item<float>(), 0);
      EXPECT_EQ(large.to_vector<float>().back(), 0.5);
      fill_(narrow(large, 0, 70'001, 1), kInf);
      EXPECT_EQ(raw::unscale_({small, large}, 0.5).item<float>(), 1);
      fill_(narrow(large, 0, 70'001, 1), std::nanf(""));
      EXPECT_EQ(raw::unscale_({small, large}, 0.5).item<float>(), 1);
    }
  }
  set_num_threads(1);
  EXPECT_EQ(raw::unscale_({}, 0.5).item<float>(), 0);
  const Tensor away = raw::unscale_({ones({4}, {.device = {DeviceType::kCPU, 1}})}, 2);
  EXPECT_EQ(away.item<float>(), 0);
}

}  // namespace
}  // namespace gradus::optim
