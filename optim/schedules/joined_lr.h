// Several schedules of one optimizer: one after the other, or all at once.
//
//   optim::LinearLR warm_up(opt, {.start_factor = 0.01, .total_iters = 5});
//   optim::CosineAnnealingLR decay(opt, {.t_max = 95});
//   optim::SequentialLR schedule(opt, {&warm_up, &decay}, {5});
#pragma once

#include "gradus/optim/schedules/lr_schedule.h"

namespace gradus::optim {

// The schedules must outlive it; only it is stepped. Its state is theirs, as "schedule.0.last_epoch".
class JoinedLR : public LRSchedule {
 public:
  State state_dict() const override;
  void load_state_dict(const State& state) override;

 protected:
  // Errors: ValueError for none, a null one, and one of another optimizer.
  JoinedLR(const char* kind, Optimizer& optimizer, std::vector<LRSchedule*> schedules);
  const std::vector<LRSchedule*>& schedules() const { return schedules_; }

 private:
  std::vector<LRSchedule*> schedules_;
};

// Each schedule steps from its milestone to the next one, from its own epoch 0 on.
class SequentialLR final : public JoinedLR {
 public:
  // Errors: also ValueError unless there is one milestone less than schedules, ascending from 1 on.
  SequentialLR(Optimizer& optimizer, std::vector<LRSchedule*> schedules, std::vector<int64_t> milestones);
  void step() override;
  void restart() override;

 private:
  std::vector<int64_t> milestones_;
};

// All step each time, in order: their factors multiply.
class ChainedScheduler final : public JoinedLR {
 public:
  ChainedScheduler(Optimizer& optimizer, std::vector<LRSchedule*> schedules)
      : JoinedLR("ChainedScheduler", optimizer, std::move(schedules)) {}
  void step() override;
  void restart() override;
};

}  // namespace gradus::optim
