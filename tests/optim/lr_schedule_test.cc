// Schedules: state and groups. Their rates against PyTorch's are in tests/golden.
#include "gradus/optim/lr_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "gradus/optim/sgd.h"

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
  EXPECT_THROW(schedule.load_state_dict({{}, {{"last_epoch", -1}, {"base_lr.0", 1}}}), ValueError);
  EXPECT_THROW(schedule.load_state_dict({{}, {{"last_epoch", 1}, {"base_lr.0", 1}, {"base_lr.1", 1}}}),
               ValueError);
  EXPECT_EQ(schedule.last_epoch(), 1);
  EXPECT_EQ(opt.lr(), 0.5);
}

TEST(Schedule, RefusesOptionsOutOfTheirDomain) {
  SGD opt({empty({1})}, {.lr = 1.0});
  EXPECT_THROW(StepLR(opt, {.step_size = 0}), ValueError);
  EXPECT_THROW(MultiStepLR(opt, {.milestones = {3, 2}}), ValueError);
  EXPECT_THROW(CosineAnnealingLR(opt, {.t_max = 0}), ValueError);
}

}  // namespace
}  // namespace gradus::optim
