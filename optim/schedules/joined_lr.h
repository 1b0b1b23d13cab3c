// Several schedules of one optimizer, in sequence or together.
//
//   optim::LinearLR warm_up(opt, {.start_factor = 0.01, .total_iters = 5});
//   optim::CosineAnnealingLR decay(opt, {.t_max = 95});
//   optim::SequentialLR schedule(opt, {&warm_up, &decay}, {5});
#pragma once

#include "gradus/optim/schedules/lr_schedule.h"

namespace gradus::optim {

// Base of the joined schedules. The joined schedules must outlive it; only call step() of this object. Its
// state contains theirs, as "schedule.0.last_epoch".
class JoinedLR : public LRSchedule {
 public:
  State state_dict() const override;
  void read_state(StateReader in) override;

 protected:
  // Errors: ValueError for no schedules, for a null one, and for a schedule of another optimizer.
  JoinedLR(const char* kind, Optimizer& optimizer, std::vector<LRSchedule*> schedules);
  const std::vector<LRSchedule*>& schedules() const { return schedules_; }

 private:
  std::vector<LRSchedule*> schedules_;
};

// Runs each schedule from its milestone to the next one, starting at its own epoch 0.
class SequentialLR final : public JoinedLR {
 public:
  // Errors: also ValueError unless there is one milestone less than schedules, ascending from 1 on.
  SequentialLR(Optimizer& optimizer, std::vector<LRSchedule*> schedules, std::vector<int64_t> milestones);
  void step() override;
  void restart() override;

 private:
  std::vector<int64_t> milestones_;
};

// Steps all schedules each time, in order. Their factors multiply.
class ChainedScheduler final : public JoinedLR {
 public:
  ChainedScheduler(Optimizer& optimizer, std::vector<LRSchedule*> schedules)
      : JoinedLR("ChainedScheduler", optimizer, std::move(schedules)) {}
  void step() override;
  void restart() override;
};

}  // namespace gradus::optim
