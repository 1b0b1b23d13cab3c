// OptimizerWrapper, one call per batch for backward and step: gradient accumulation, clipping, no_sync
// (gradients are not reduced before the last batch of a step), state, GradScaler. Losses are linear, so
// expected weights are exact.
#include "gradus/optim/optimizer_wrapper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/ops/ops.h"
#include "gradus/optim/optimizers/adam.h"
#include "gradus/optim/optimizers/sgd.h"
#include "gradus/tests/ops/values.h"

namespace gradus::optim {
namespace {

using testing::ElementsAre;

// loss = sum(w * x), so that a batch's gradient is x.
struct Linear {
  Tensor w = tensor<double>({0, 0}, {2});
  GradManager gm;
  SGD sgd{{w}, {.lr = 1}};

  explicit Linear() { gm.attach(w); }
  bool update(OptimizerWrapper& wrapper, double x0, double x1) {
    auto recording = gm.record();
    return wrapper.update_params(gm, sum(w * tensor<double>({x0, x1}, {2})));
  }
  std::vector<double> weights() const { return w.to_vector<double>(); }
};

TEST(OptimizerWrapper, StepsOnEachBatchByDefault) {
  Linear m;
  OptimizerWrapper wrapper(m.sgd);
  EXPECT_TRUE(wrapper.should_update());
  EXPECT_TRUE(m.update(wrapper, 1, 2));
  EXPECT_TRUE(m.update(wrapper, 3, 4));
  EXPECT_THAT(m.weights(), ElementsAre(-4, -6));
  EXPECT_FALSE(m.w.grad().defined());
}

TEST(OptimizerWrapper, AccumulatedBatchesCountTheirShare) {
  Linear m;
  OptimizerWrapper wrapper(m.sgd, {.accumulative_counts = 4});
  for (int i = 1; i <= 8; ++i) {
    EXPECT_EQ(wrapper.should_update(), i % 4 == 0) << i;
    EXPECT_EQ(wrapper.should_sync(), i % 4 == 0) << i;
    EXPECT_EQ(m.update(wrapper, i, 0), i % 4 == 0) << i;
    if (i == 4) {
      EXPECT_THAT(m.weights(), ElementsAre(-2.5, 0)) << "the mean of 1..4";
    }
  }
  EXPECT_THAT(m.weights(), ElementsAre(-9, 0));
}

TEST(OptimizerWrapper, TheLastStepOfATrainingTakesTheRest) {
  Linear m;
  OptimizerWrapper wrapper(m.sgd, {.accumulative_counts = 4});
  wrapper.initialize_count_status(0, 6);
  std::vector<bool> stepped;
  for (int i = 1; i <= 6; ++i) stepped.push_back(m.update(wrapper, i, 0));
  EXPECT_THAT(stepped, ElementsAre(false, false, false, true, false, true));
  EXPECT_THAT(m.weights(), ElementsAre(-(2.5 + 5.5), 0)) << "the rest is a mean over its two batches";
}

TEST(OptimizerWrapper, ATrainingThatGoesOnAccumulatesAnew) {
  Linear m;
  OptimizerWrapper wrapper(m.sgd, {.accumulative_counts = 2});
  m.update(wrapper, 100, 0);
  m.sgd.clear_grad();
  wrapper.initialize_count_status(3, 6);
  std::vector<bool> stepped;
  for (int i = 0; i < 3; ++i) stepped.push_back(m.update(wrapper, 1, 0));
  EXPECT_THAT(stepped, ElementsAre(false, true, true));
  EXPECT_THAT(m.weights(), ElementsAre(-2, 0));
  EXPECT_THROW(wrapper.initialize_count_status(-1, 5), ValueError);
  EXPECT_THROW(wrapper.initialize_count_status(6, 5), ValueError);
}

TEST(OptimizerWrapper, KeepsGradientsBackUntilTheLastBatchOfAStep) {
  Linear m;
  OptimizerWrapper wrapper(m.sgd, {.accumulative_counts = 3});
  int inside = 0, entered = 0;  // no_sync scopes: open, opened in all
  std::vector<int> during;      // `inside` during each backward
  GradManager gm;
  gm.attach(m.w, [&](const Tensor&, const Tensor& g) { return during.push_back(inside), g; });
  for (int i = 0; i < 6; ++i) {
    auto recording = gm.record();
    wrapper.update_params(gm, sum(m.w), [&] {
      ++inside, ++entered;
      return std::shared_ptr<void>(nullptr, [&](void*) { --inside; });
    });
  }
  EXPECT_THAT(during, ElementsAre(1, 1, 0, 1, 1, 0));
  EXPECT_EQ(entered, 4);
  EXPECT_EQ(inside, 0);
}

TEST(OptimizerWrapper, ClipsTheWholeStepsGradientByItsNorm) {
  Linear m;
  OptimizerWrapper wrapper(m.sgd, {.accumulative_counts = 2, .clip_norm = 1});
  m.update(wrapper, 6, 8);
  EXPECT_FALSE(wrapper.grad_norm().defined());
  m.update(wrapper, 0, 0);
  EXPECT_DOUBLE_EQ(wrapper.grad_norm().item<double>(), 5);
  EXPECT_NEAR(m.weights()[0], -0.6, 1e-6);  // a clipped norm is a little below the bound
  EXPECT_NEAR(m.weights()[1], -0.8, 1e-6);
}

TEST(OptimizerWrapper, ClipsByOtherNormsAndByValue) {
  Linear m, v;
  OptimizerWrapper by_max(m.sgd, {.clip_norm = 1, .norm_type = INFINITY}),
      by_value(v.sgd, {.clip_value = 0.5});
  m.update(by_max, 2, -4);
  EXPECT_NEAR(m.weights()[0], -0.5, 1e-6);
  EXPECT_NEAR(m.weights()[1], 1, 1e-6);
  v.update(by_value, 0.25, -4);
  EXPECT_THAT(v.weights(), ElementsAre(-0.25, 0.5));
}

TEST(OptimizerWrapper, ARecordingTakesTheManagersPlace) {
  Linear m;
  OptimizerWrapper wrapper(m.sgd);
  auto recording = m.gm.record();
  EXPECT_TRUE(wrapper.update_params(recording, sum(m.w)));
  EXPECT_THAT(m.weights(), ElementsAre(-1, -1));
}

TEST(OptimizerWrapper, RecordsAndRunsTheBackwardOfItsManager) {
  Linear m;
  OptimizerWrapper wrapper(m.sgd, m.gm, {.accumulative_counts = 2});
  std::vector<bool> stepped;
  for (int i = 1; i <= 4; ++i) {
    auto recording = wrapper.record();
    stepped.push_back(wrapper.update_params(sum(m.w * tensor<double>({double(i), 1}, {2}))));
    EXPECT_EQ(wrapper.accumulated(), i % 2);
  }
  EXPECT_THAT(stepped, ElementsAre(false, true, false, true));
  EXPECT_THAT(m.weights(), ElementsAre(-1.5 - 3.5, -2));
}

TEST(OptimizerWrapper, RecordsOfItsManagerWhatItIsToldTo) {
  const Tensor a = tensor<double>({0}, {1}), b = tensor<double>({0}, {1});
  GradManager gm;
  gm.attach({a, b});
  SGD sgd({a, b}, {.lr = 1});
  OptimizerWrapper wrapper(sgd, gm);
  auto recording = wrapper.record({.only = {b}});
  wrapper.update_params(sum(a + b));
  EXPECT_EQ(a.item<double>(), 0);
  EXPECT_EQ(b.item<double>(), -1);
}

TEST(OptimizerWrapper, KeepsGradientsBackAsItsOptionsSay) {
  Linear m;
  int inside = 0;           // open no_sync scopes
  std::vector<int> during;  // `inside` during each backward
  struct Held {             // move-only, as the scope of DistributedDataParallel
    explicit Held(int* count) : count(count) { ++*count; }
    Held(Held&& other) noexcept : count(std::exchange(other.count, nullptr)) {}
    ~Held() {
      if (count) --*count;
    }
    int* count;
  };
  GradManager gm;
  gm.attach(m.w, [&](const Tensor&, const Tensor& g) { return during.push_back(inside), g; });
  OptimizerWrapper wrapper(m.sgd, gm, {.accumulative_counts = 3, .no_sync = [&] { return Held(&inside); }});
  for (int i = 0; i < 6; ++i) {
    auto recording = wrapper.record();
    if (i < 3)
      wrapper.update_params(sum(m.w));
    else
      wrapper.update_params(gm, sum(m.w));
  }
  EXPECT_THAT(during, ElementsAre(1, 1, 0, 1, 1, 0));
  EXPECT_EQ(inside, 0);
}

TEST(OptimizerWrapper, WithoutAManagerSaysHowToGiveOne) {
  Linear m;
  OptimizerWrapper wrapper(m.sgd);
  EXPECT_ERROR(StateError, (void)wrapper.record(), "GradManager", "OptimizerWrapper(optimizer, gm)");
  auto recording = m.gm.record();
  EXPECT_ERROR(StateError, wrapper.update_params(sum(m.w)), "GradManager");
}

TEST(OptimizerWrapper, StepsAndClearsForABackwardOfOnesOwn) {
  Linear m;
  OptimizerWrapper wrapper(m.sgd, {.clip_norm = 1});
  auto recording = m.gm.record();
  m.gm.backward(sum(m.w * tensor<double>({3, 4}, {2})));
  wrapper.step();
  EXPECT_NEAR(m.weights()[0], -0.6, 1e-6);
  EXPECT_DOUBLE_EQ(wrapper.grad_norm().item<double>(), 5);
  EXPECT_TRUE(m.w.grad().defined());
  wrapper.clear_grad();
  EXPECT_FALSE(m.w.grad().defined());
}

TEST(OptimizerWrapper, AccumulatesAnewAfterClearGrad) {
  Linear m;
  OptimizerWrapper wrapper(m.sgd, {.accumulative_counts = 2});
  wrapper.initialize_count_status(0, 4);
  m.update(wrapper, 100, 0);
  EXPECT_EQ(wrapper.accumulated(), 1);
  wrapper.clear_grad();
  EXPECT_EQ(wrapper.accumulated(), 0);
  std::vector<bool> stepped;
  for (int i = 1; i <= 3; ++i) stepped.push_back(m.update(wrapper, i, 0));
  EXPECT_THAT(stepped, ElementsAre(false, true, true)) << "three of four are left";
  EXPECT_THAT(m.weights(), ElementsAre(-1.5 - 3, 0));
}

TEST(OptimizerWrapper, HasNoStateBetweenTheBatchesOfAStep) {
  Linear m;
  OptimizerWrapper wrapper(m.sgd, {.accumulative_counts = 3});
  const State state = wrapper.state_dict();
  for (int i = 1; i <= 2; ++i) {
    m.update(wrapper, 1, 0);
    const std::string count = std::to_string(i) + " batches";
    EXPECT_ERROR(StateError, wrapper.state_dict(), count.c_str(), "between two steps");
    EXPECT_ERROR(StateError, wrapper.load_state_dict(state), count.c_str());
    // A checkpoint may contain the optimizer instead of the wrapper.
    EXPECT_ERROR(StateError, m.sgd.state_dict(), "SGD", count.c_str());
    EXPECT_ERROR(StateError, m.sgd.load_state_dict(state), "SGD", count.c_str());
  }
  m.update(wrapper, 1, 0);
  wrapper.load_state_dict(wrapper.state_dict());
  m.sgd.load_state_dict(m.sgd.state_dict());
  m.update(wrapper, 1, 0);
  m.sgd.clear_grad();
  EXPECT_EQ(wrapper.accumulated(), 0);
  m.sgd.load_state_dict(m.sgd.state_dict());
}

TEST(OptimizerWrapper, RefusesWhatItCannotDo) {
  Linear m;
  EXPECT_THROW(OptimizerWrapper(m.sgd, {.accumulative_counts = 0}), ValueError);
  EXPECT_THROW(OptimizerWrapper(m.sgd, {.clip_norm = 1, .clip_value = 1}), ValueError);
  EXPECT_THROW(OptimizerWrapper(m.sgd, {.clip_norm = -1}), ValueError);
  EXPECT_THROW(OptimizerWrapper(m.sgd, {.clip_value = -1}), ValueError);
  EXPECT_THROW(OptimizerWrapper(m.sgd, {.clip_norm = 1, .norm_type = 0}), ValueError);
  OptimizerWrapper wrapper(m.sgd);
  auto recording = m.gm.record();
  EXPECT_ERROR(ShapeError, wrapper.update_params(m.gm, m.w * 1), "one element", "f64[2]");
}

TEST(OptimizerWrapper, StateRatesAndMomentaAreTheOptimizers) {
  const Tensor a = random_tensor({2}), b = random_tensor({2});
  Adam opt({a}, {.lr = 0.1, .betas = {0.5, 0.9}}), other({a}, {});
  opt.add_param_group({b}, {.lr = 0.2});
  OptimizerWrapper wrapper(opt);
  EXPECT_THAT(wrapper.lr(), ElementsAre(0.1, 0.2));
  EXPECT_THAT(wrapper.momentum(), ElementsAre(0.5, 0.9));
  State state = wrapper.state_dict();
  for (auto& [name, value] : state.numbers)
    if (name == "group.1.lr") value = 0.25;
  wrapper.load_state_dict(state);
  EXPECT_EQ(opt.lr(1), 0.25);
}

TEST(OptimizerWrapperWithScaler, SkipsAndStepsAsTheScalerSays) {
  const Tensor w = ones({1});
  GradManager gm;
  gm.attach(w);
  SGD opt({w}, {.lr = 0.5});
  GradScaler scaler({.init_scale = 8});
  OptimizerWrapper optimizer(opt, {.accumulative_counts = 2, .clip_norm = 0.5, .scaler = &scaler});
  const auto update = [&](double slope) {
    auto recording = gm.record();
    return optimizer.update_params(gm, sum(w * slope));
  };
  EXPECT_FALSE(update(std::numeric_limits<double>::infinity()));
  EXPECT_FALSE(update(1));  // the step is due; the scaler skips it
  EXPECT_EQ(scaler.skipped_steps(), 1);
  EXPECT_EQ(w.item<float>(), 1);
  EXPECT_FALSE(update(4));
  EXPECT_TRUE(update(4));
  EXPECT_EQ(optimizer.grad_norm().item<float>(), 4);
  EXPECT_NEAR(w.item<float>(), 1 - 0.5 * 0.5, 1e-6);
}

// With the wrapper's own manager: scaling and unscaling do not change the step.
TEST(OptimizerWrapperWithScaler, IsTheSameStepAsWithoutOne) {
  Linear plain, scaled;
  GradScaler scaler({.init_scale = 1024});
  OptimizerWrapper a(plain.sgd, plain.gm, {.accumulative_counts = 2}),
      b(scaled.sgd, scaled.gm, {.accumulative_counts = 2, .scaler = &scaler});
  for (int i = 1; i <= 4; ++i)
    for (auto& [m, wrapper] : {std::pair(&plain, &a), std::pair(&scaled, &b)}) {
      auto recording = wrapper->record();
      wrapper->update_params(sum(m->w * tensor<double>({double(i), -3}, {2})));
      if (i == 1) {
        EXPECT_EQ(m->w.grad().to_vector<double>()[0], m == &plain ? 0.5 : 512);
      }
    }
  EXPECT_EQ(scaled.weights(), plain.weights()) << "1024 is a power of two";
}

}  // namespace
}  // namespace gradus::optim
