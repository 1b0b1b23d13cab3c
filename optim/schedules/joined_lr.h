// SequentialLR and ChainedScheduler: several schedules of one optimizer, in sequence or combined.
//
//   optim::LinearLR warm_up(opt, {.start_factor = 0.01, .total_iters = 5});
//   optim::CosineAnnealingLR decay(opt, {.t_max = 95});
//   optim::SequentialLR schedule(opt, {&warm_up, &decay}, {5});
#pragma once

#include "gradus/optim/schedules/lr_schedule.h"

namespace gradus::optim {

// Base of SequentialLR and ChainedScheduler. The schedules must outlive this object, which alone calls their
// step(). The state of this object contains their states, as "schedule.0.last_epoch".
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

// Uses schedule i from milestone i - 1 up to milestone i, starting at its epoch 0.
class SequentialLR final : public JoinedLR {
 public:
  // Errors: also ValueError unless there is one milestone less than schedules, ascending from 1 on.
  SequentialLR(Optimizer& optimizer, std::vector<LRSchedule*> schedules, std::vector<int64_t> milestones);
  void step() override;
  void restart() override;

 private:
  std::vector<int64_t> milestones_;
};

// Each step() steps all schedules, in order. Their factors multiply.
class ChainedScheduler final : public JoinedLR {
 public:
  ChainedScheduler(Optimizer& optimizer, std::vector<LRSchedule*> schedules)
      : JoinedLR("ChainedScheduler", optimizer, std::move(schedules)) {}
  void step() override;
  void restart() override;
};

}  // namespace gradus::optim
