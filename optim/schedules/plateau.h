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
  int64_t patience = 10;    // epochs without improvement that are let pass
  double threshold = 1e-4;  // by how much a better metric must be better
  ThresholdMode threshold_mode = ThresholdMode::kRel;
  int64_t cooldown = 0;  // epochs after a reduction that do not count
  PerGroup min_lr = 0;
  double eps = 1e-8;  // a smaller change of a rate is not made
};

class ReduceLROnPlateau {
 public:
  // `optimizer` must outlive it.
  // Errors: ValueError unless factor is in (0, 1), for a negative option, and for another number of
  // min_lr than groups.
  explicit ReduceLROnPlateau(Optimizer& optimizer, ReduceLROnPlateauOptions options = {});

  // Ends an epoch whose metric is given. NaN is no improvement.
  void step(double metric);
  int64_t last_epoch() const { return epoch_; }
  double best() const { return best_; }  // infinite before the first step
  std::vector<double> last_lr() const;   // per group

  State state_dict() const;
  // Also sets the optimizer's rates.
  // Errors: ValueError listing what does not fit; nothing is changed then.
  void load_state_dict(const State& state);

 private:
  bool is_better(double metric) const;
  Optimizer& optimizer_;
  ReduceLROnPlateauOptions options_;
  int64_t epoch_ = 0, bad_epochs_ = 0, cooldown_left_ = 0;
  double best_;
};

}  // namespace gradus::optim
