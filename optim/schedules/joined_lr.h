// Learning-rate schedules as in torch.optim.lr_scheduler: SequentialLR and ChainedScheduler, which combine
// several schedules of one optimizer, and ReduceLROnPlateau, which depends on a metric.
//
//   optim::LinearLR warm_up(opt, {.start_factor = 0.01, .total_iters = 5});
//   optim::CosineAnnealingLR decay(opt, {.t_max = 95});
//   optim::SequentialLR schedule(opt, {&warm_up, &decay}, {5});
//
//   optim::ReduceLROnPlateau plateau(opt, {.patience = 3});
//   for (int epoch = 0; epoch < 50; ++epoch) { train(); plateau.step(validation_loss()); }
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

// Uses schedule i in the epochs [milestones[i - 1], milestones[i]), which begin with epoch 0 of schedule i.
class SequentialLR final : public JoinedLR {
 public:
  // Resets the rates, which the schedules' constructors have changed, to the initial ones, and starts
  // schedule 0.
  // Errors: as JoinedLR; ValueError unless there is one milestone less than schedules, ascending from 1 on.
  SequentialLR(Optimizer& optimizer, std::vector<LRSchedule*> schedules, std::vector<int64_t> milestones);
  void step() override;
  void restart() override;

 private:
  std::vector<int64_t> milestones_;
};

// Each step() steps all schedules, in order. Their factors multiply.
class ChainedScheduler final : public JoinedLR {
 public:
  ChainedScheduler(Optimizer& optimizer, std::vector<LRSchedule*> schedules);
  void step() override;
  void restart() override;
};

enum class MetricMode { kMin, kMax };
enum class ThresholdMode { kRel, kAbs };

struct ReduceLROnPlateauOptions {
  MetricMode mode = MetricMode::kMin;  // whether a lower or a higher metric is better
  double factor = 0.1;                 // of a reduction: rate = max(factor * rate, min_lr)
  int64_t patience = 10;               // number of epochs without improvement that do not cause a reduction
  double threshold = 1e-4;             // minimum improvement: threshold * best (kRel), or threshold (kAbs)
  ThresholdMode threshold_mode = ThresholdMode::kRel;
  int64_t cooldown = 0;  // epochs after a reduction that do not count as epochs without improvement
  PerGroup min_lr = 0;
  double eps = 1e-8;  // a rate is not reduced if the change is at most eps
};

// Reduces the learning rates after more than `patience` epochs in a row without improvement of the metric.
class ReduceLROnPlateau {
 public:
  // `optimizer` must outlive the schedule.
  // Errors: ValueError unless factor is in (0, 1), for negative options, and for a number of min_lr other
  // than 1 and the number of groups.
  explicit ReduceLROnPlateau(Optimizer& optimizer, ReduceLROnPlateauOptions options = {});

  // Ends an epoch with this metric. NaN is no improvement.
  void step(double metric);
  int64_t last_epoch() const { return epoch_; }
  double best() const { return best_; }  // infinite before the first step
  std::vector<double> last_lr() const;   // for each group

  State state_dict() const;
  // Loads a state, and sets the optimizer's learning rates.
  // Errors: ValueError listing missing, unexpected and mismatching entries. The schedule is then unchanged.
  void load_state_dict(const State& state);

 private:
  bool is_better(double metric) const;
  Optimizer& optimizer_;
  ReduceLROnPlateauOptions options_;
  int64_t epoch_ = 0, bad_epochs_ = 0, cooldown_remaining_ = 0;
  double best_;
};

}  // namespace gradus::optim
