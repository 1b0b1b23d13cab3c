// ReduceLROnPlateau: lowers the learning rate when a metric has stopped improving.
//
//   optim::ReduceLROnPlateau schedule(opt, {.patience = 3});
//   for (int epoch = 0; epoch < 50; ++epoch) { train(); schedule.step(validation_loss()); }
#pragma once

#include "gradus/optim/schedules/lr_schedule.h"

namespace gradus::optim {

enum class MetricMode { kMin, kMax };
enum class ThresholdMode { kRel, kAbs };

struct ReduceLROnPlateauOptions {
  MetricMode mode = MetricMode::kMin;  // whether lower or higher is better
  double factor = 0.1;
  int64_t patience = 10;    // number of epochs without improvement to tolerate
  double threshold = 1e-4;  // least improvement that counts
  ThresholdMode threshold_mode = ThresholdMode::kRel;
  int64_t cooldown = 0;  // epochs after a reduction that do not count as bad
  PerGroup min_lr = 0;
  double eps = 1e-8;  // smaller changes of a rate are not made
};

class ReduceLROnPlateau {
 public:
  // `optimizer` must outlive the schedule.
  // Errors: ValueError unless factor is in (0, 1), for a negative option, and for another number of
  // min_lr than groups.
  explicit ReduceLROnPlateau(Optimizer& optimizer, ReduceLROnPlateauOptions options = {});

  // Ends an epoch, given its metric. NaN is no improvement.
  void step(double metric);
  int64_t last_epoch() const { return epoch_; }
  double best() const { return best_; }  // infinite before the first step
  std::vector<double> last_lr() const;   // for each group

  State state_dict() const;
  // Loads a state, and sets the optimizer's rates.
  // Errors: ValueError listing what does not fit. Nothing is changed then.
  void load_state_dict(const State& state);

 private:
  bool is_better(double metric) const;
  Optimizer& optimizer_;
  ReduceLROnPlateauOptions options_;
  int64_t epoch_ = 0, bad_epochs_ = 0, cooldown_left_ = 0;
  double best_;
};

}  // namespace gradus::optim
