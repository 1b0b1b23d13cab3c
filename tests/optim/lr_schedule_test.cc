// Learning rate schedules: parameter groups, state, momentum, joined schedules, errors. tests/golden compares
// the rates with PyTorch.
#include "gradus/optim/optim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

namespace gradus::optim {
namespace {

TEST(Schedule, StepsEveryGroupFromItsOwnRate) {
  SGD opt({empty({1})}, {.lr = 1.0});
  opt.add_param_group({empty({1})}, {.lr = 0.5});
  StepLR schedule(opt, {.step_size = 2, .gamma = 0.1});
  schedule.step();
  EXPECT_EQ(opt.lr(0), 1.0);
  schedule.step();
  EXPECT_DOUBLE_EQ(opt.lr(0), 0.1);
  EXPECT_DOUBLE_EQ(opt.lr(1), 0.05);
  EXPECT_THAT(schedule.last_lr(), testing::ElementsAre(opt.lr(0), opt.lr(1)));
}

TEST(Schedule, ContinuesExactlyFromItsState) {
  const auto run = [](bool resume) {
    SGD opt({empty({1})}, {.lr = 1.0});
    auto schedule = std::make_unique<CosineAnnealingLR>(opt, CosineAnnealingLROptions{.t_max = 10});
    for (int i = 0; i < 3; ++i) schedule->step();
    if (resume) {
      const State state = schedule->state_dict();
      schedule = std::make_unique<CosineAnnealingLR>(opt, CosineAnnealingLROptions{.t_max = 10});
      schedule->load_state_dict(state);
    }
    for (int i = 0; i < 3; ++i) schedule->step();
    EXPECT_EQ(schedule->last_epoch(), 6);
    return opt.lr();
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Schedule, TakesItsOwnStateBackAfterAGroupWasAdded) {
  SGD opt({empty({1})}, {.lr = 1.0});
  StepLR schedule(opt, {.step_size = 2, .gamma = 0.1});
  opt.add_param_group({empty({1})}, {.lr = 0.5});
  schedule.load_state_dict(schedule.state_dict());
  EXPECT_EQ(opt.lr(1), 0.5);
}

TEST(Schedule, RefusesAStateThatDoesNotFit) {
  SGD opt({empty({1})}, {.lr = 1.0});
  ExponentialLR schedule(opt, {.gamma = 0.5});
  schedule.step();
  EXPECT_THROW(schedule.load_state_dict({}), ValueError);
  const auto with = [&](const char* name, double value) {
    State state = schedule.state_dict();
    std::erase_if(state.numbers, [&](const auto& n) { return n.first == name; });
    state.numbers.emplace_back(name, value);
    return state;
  };
  EXPECT_THROW(schedule.load_state_dict(with("last_epoch", -2)), ValueError);
  EXPECT_THROW(schedule.load_state_dict(with("last_lr.0", -1)), ValueError);
  EXPECT_THROW(schedule.load_state_dict(with("base_lr.1", 1)), ValueError);
  EXPECT_EQ(schedule.last_epoch(), 1);
  EXPECT_EQ(opt.lr(), 0.5);
}

TEST(Schedule, SeveralStartFromTheRateOfTheFirst) {
  SGD opt({empty({1})}, {.lr = 1.0});
  LinearLR warm_up(opt, {.start_factor = 0.1, .total_iters = 3});
  EXPECT_DOUBLE_EQ(opt.lr(), 0.1);
  EXPECT_EQ(opt.initial_lr(0), 1.0);
  CosineAnnealingLR decay(opt, {.t_max = 10});
  SequentialLR schedule(opt, {&warm_up, &decay}, {3});
  for (int i = 0; i < 3; ++i) schedule.step();
  EXPECT_DOUBLE_EQ(opt.lr(), 1.0);
  schedule.restart();
  EXPECT_DOUBLE_EQ(opt.lr(), 0.1);
  EXPECT_EQ(schedule.last_epoch(), 0);
}

TEST(Schedule, AOneCycleWhoseRiseHasNoLengthBeginsAtItsHighest) {
  SGD opt({empty({1})}, {.lr = 1, .momentum = 0.9});
  // The rise has pct_start * total_steps - 1 = 0 steps.
  OneCycleLR schedule(opt, {.max_lr = 0.5, .total_steps = 4, .pct_start = 0.25, .cycle_momentum = false});
  EXPECT_EQ(opt.lr(), 0.5);
  for (int step = 0; step < 3; ++step) schedule.step();
  EXPECT_NEAR(opt.lr(), 0.5 / 25 / 1e4, 1e-12);
}

TEST(Schedule, SetsTheMomentumOfAnyOptimizerThatHasOne) {
  Adam adam({empty({1})});
  OneCycleLR schedule(adam, {.max_lr = 1.0, .total_steps = 10});
  EXPECT_DOUBLE_EQ(adam.momentum(), 0.95);
  EXPECT_DOUBLE_EQ(adam.options().betas[0], 0.95);
  EXPECT_EQ(adam.options().betas[1], 0.999);
  for (int i = 0; i < 10; ++i) schedule.step();
  EXPECT_DOUBLE_EQ(adam.lr(), 1.0 / 25 / 1e4);
  EXPECT_THROW(schedule.step(), ValueError);
  EXPECT_EQ(schedule.last_epoch(), 10);

  Adagrad adagrad({empty({1})});
  EXPECT_FALSE(adagrad.has_momentum());
  EXPECT_THROW(OneCycleLR(adagrad, {.max_lr = 1.0, .total_steps = 3}), ValueError);
  EXPECT_THROW(CyclicLR(adagrad, {.base_lr = 0.1, .max_lr = 1.0}), ValueError);
  EXPECT_THROW(adagrad.set_momentum(0, 0.5), ValueError);
  EXPECT_NO_THROW(OneCycleLR(adagrad, {.max_lr = 1.0, .total_steps = 3, .cycle_momentum = false}));
}

TEST(Schedule, AJoinedOneTakesItsStateAsAWholeOrNotAtAll) {
  SGD opt({empty({1})}, {.lr = 1.0});
  StepLR first(opt, {.step_size = 1, .gamma = 0.5}), second(opt, {.step_size = 1, .gamma = 0.1});
  ChainedScheduler schedule(opt, {&first, &second});
  schedule.step();
  State state = schedule.state_dict();
  schedule.step();
  State bad = state;
  std::erase_if(bad.numbers, [](const auto& n) { return n.first == "schedule.1.last_epoch"; });
  EXPECT_THROW(schedule.load_state_dict(bad), ValueError);
  EXPECT_EQ(first.last_epoch(), 2);
  EXPECT_DOUBLE_EQ(opt.lr(), 0.0025);
  schedule.load_state_dict(state);
  EXPECT_EQ(second.last_epoch(), 1);
  EXPECT_DOUBLE_EQ(opt.lr(), 0.05);
}

// In step 3 the factor of group 1 is -0.5, and its rate would be -0.25. The error leaves all rates unchanged.
TEST(Schedule, ARateBelowZeroNamesScheduleStepAndRate) {
  SGD opt({empty({1})}, {.lr = 1.0});
  opt.add_param_group({empty({1})}, {.lr = 0.5});
  LambdaLR first(opt, std::vector<LambdaLR::Factor>{[](int64_t) { return 1.0; },
                                                    [](int64_t epoch) { return 1 - 0.5 * double(epoch); }});
  StepLR second(opt, {.step_size = 10});
  ChainedScheduler schedule(opt, {&first, &second});
  schedule.step();
  schedule.step();
  opt.set_lr(0, 0.75);
  try {
    schedule.step();
    ADD_FAILURE() << "no error";
  } catch (const ValueError& error) {
    EXPECT_EQ(error.op(), "LambdaLR");
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("step 3"), testing::HasSubstr("group 1"),
                                             testing::HasSubstr("-0.25")));
  }
  EXPECT_EQ(opt.lr(0), 0.75);
  EXPECT_EQ(opt.lr(1), 0);
  EXPECT_THROW(MultiplicativeLR(opt, [](int64_t) { return std::nan(""); }).step(), ValueError);
}

TEST(Schedule, RefusesOptionsOutOfTheirDomain) {
  SGD opt({empty({1})}, {.lr = 1.0}), other({empty({1})}, {.lr = 1.0});
  EXPECT_THROW(LambdaLR(opt, std::vector<LambdaLR::Factor>{}), ValueError);
  EXPECT_THROW(LambdaLR(opt, LambdaLR::Factor()), ValueError);
  EXPECT_THROW(MultiplicativeLR(opt, std::vector<LambdaLR::Factor>{}), ValueError);
  EXPECT_THROW(StepLR(opt, {.step_size = 0}), ValueError);
  EXPECT_THROW(MultiStepLR(opt, {.milestones = {3, 2}}), ValueError);
  EXPECT_THROW(ConstantLR(opt, {.factor = 0}), ValueError);
  EXPECT_THROW(ConstantLR(opt, {.factor = 1.5}), ValueError);
  EXPECT_THROW(ConstantLR(opt, {.total_iters = -1}), ValueError);
  EXPECT_THROW(LinearLR(opt, {.start_factor = 0}), ValueError);
  EXPECT_THROW(LinearLR(opt, {.end_factor = 1.5}), ValueError);
  EXPECT_THROW(LinearLR(opt, {.total_iters = 0}), ValueError);
  EXPECT_THROW(PolynomialLR(opt, {.total_iters = 0}), ValueError);
  EXPECT_THROW(CosineAnnealingLR(opt, {.t_max = 0}), ValueError);
  EXPECT_THROW(CosineAnnealingWarmRestarts(opt, {.t_0 = 0}), ValueError);
  EXPECT_THROW(CosineAnnealingWarmRestarts(opt, {.t_0 = 1, .t_mult = 0}), ValueError);
  EXPECT_THROW(SWALR(opt, {.swa_lr = 0.1, .anneal_epochs = -1}), ValueError);
  EXPECT_THROW(SWALR(opt, {.swa_lr = {0.1, 0.2}}), ValueError);
  EXPECT_THROW(CyclicLR(opt, {.base_lr = 0.1, .max_lr = 1, .step_size_up = 0}), ValueError);
  EXPECT_THROW(CyclicLR(opt, {.base_lr = 0.1, .max_lr = 1, .step_size_down = -1}), ValueError);
  EXPECT_THROW(CyclicLR(opt, {.base_lr = {0.1, 0.2}, .max_lr = 1}), ValueError);
  EXPECT_THROW(OneCycleLR(opt, {.max_lr = 1}), ValueError);
  EXPECT_THROW(OneCycleLR(opt, {.max_lr = 1, .epochs = 3}), ValueError);
  EXPECT_THROW(OneCycleLR(opt, {.max_lr = 1, .total_steps = -1}), ValueError);
  EXPECT_THROW(OneCycleLR(opt, {.max_lr = 1, .total_steps = 5, .pct_start = 1.5}), ValueError);
  EXPECT_THROW(OneCycleLR(opt, {.max_lr = 1, .total_steps = 5, .div_factor = 0}), ValueError);
  EXPECT_THROW(OneCycleLR(opt, {.max_lr = 1, .total_steps = 5, .final_div_factor = 0}), ValueError);
  EXPECT_THROW(OneCycleLR(opt, {.max_lr = {1.0, 2.0}, .total_steps = 5}), ValueError);
  EXPECT_THROW(ReduceLROnPlateau(opt, {.factor = 1}), ValueError);
  EXPECT_THROW(ReduceLROnPlateau(opt, {.factor = 0}), ValueError);
  EXPECT_THROW(ReduceLROnPlateau(opt, {.patience = -1}), ValueError);
  EXPECT_THROW(ReduceLROnPlateau(opt, {.threshold = -1}), ValueError);
  EXPECT_THROW(ReduceLROnPlateau(opt, {.cooldown = -1}), ValueError);
  EXPECT_THROW(ReduceLROnPlateau(opt, {.min_lr = {0.1, 0.2}}), ValueError);
  EXPECT_THROW(ReduceLROnPlateau(opt, {.eps = -1}), ValueError);
  EXPECT_THROW(ReduceLROnPlateau(opt).load_state_dict({}), ValueError);
  EXPECT_EQ(opt.lr(), 1.0);
  StepLR step(opt, {.step_size = 1}), foreign(other, {.step_size = 1});
  EXPECT_THROW(SequentialLR(opt, {}, {}), ValueError);
  EXPECT_THROW(SequentialLR(opt, {&step, nullptr}, {1}), ValueError);
  EXPECT_THROW(SequentialLR(opt, {&step, &foreign}, {1}), ValueError);
  // Milestones: one less than schedules, ascending from 1 on.
  EXPECT_THROW(SequentialLR(opt, {&step, &step}, {}), ValueError);
  EXPECT_THROW(SequentialLR(opt, {&step, &step}, {0}), ValueError);
  EXPECT_THROW(SequentialLR(opt, {&step, &step, &step}, {2, 1}), ValueError);
  EXPECT_THROW(ChainedScheduler(opt, {}), ValueError);
}

}  // namespace
}  // namespace gradus::optim
