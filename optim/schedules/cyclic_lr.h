// Schedules that go up and down, once or again and again, with the momentum the other
// way: CyclicLR, OneCycleLR.
#pragma once

#include "gradus/optim/schedules/lr_schedule.h"

namespace gradus::optim {

enum class CyclicMode {
  kTriangular,   // all cycles alike
  kTriangular2,  // each half as high as the one before
  kExpRange      // heights fall as gamma^epoch
};
enum class CyclicScale { kCycle, kIterations };

struct CyclicLROptions {
  Required<PerGroup, "base_lr"> base_lr;
  Required<PerGroup, "max_lr"> max_lr;
  int64_t step_size_up = 2000;
  int64_t step_size_down = 0;  // 0: as step_size_up
  CyclicMode mode = CyclicMode::kTriangular;
  double gamma = 1;
  // Takes the place of mode: a factor of the height, from the cycle's number (the first is 1) or the epoch.
  std::function<double(double)> scale_fn = {};
  CyclicScale scale_mode = CyclicScale::kCycle;
  bool cycle_momentum = true;  // from max_momentum, at the lowest rate, to base_momentum
  PerGroup base_momentum = 0.8, max_momentum = 0.9;
};
// Linearly from base_lr to max_lr in step_size_up steps, back in step_size_down, and again. Where the
// optimizer has betas, beta1 is the momentum.
// Source: Smith, WACV 2017.
class CyclicLR final : public LRSchedule {
 public:
  // Errors: ValueError for sizes < 1, another number of values than groups, cycle_momentum
  // without a momentum.
  CyclicLR(Optimizer& optimizer, CyclicLROptions options);

 private:
  double height() const;
  double scale() const;
  double rate(size_t group, double base, double now) const override;
  std::optional<double> momentum(size_t group) const override;
  CyclicLROptions options_;
};

struct OneCycleLROptions {
  Required<PerGroup, "max_lr"> max_lr;
  int64_t total_steps = 0;  // 0: epochs * steps_per_epoch
  int64_t epochs = 0, steps_per_epoch = 0;
  double pct_start = 0.3;  // share of the steps that go up
  Anneal anneal_strategy = Anneal::kCos;
  bool cycle_momentum = true;  // from max_momentum to base_momentum, at the highest rate, and back
  PerGroup base_momentum = 0.85, max_momentum = 0.95;
  double div_factor = 25;         // the first rate is max_lr / div_factor
  double final_div_factor = 1e4;  // the last rate is the first / final_div_factor
  bool three_phase = false;       // up, down to the first rate in as many steps, on to the last rate
};
// One step per batch, total_steps at most: up to max_lr, and down to far below the rate it began with. The
// groups' own rates do not count.
// Source: Smith and Topin, arXiv:1708.07120.
class OneCycleLR final : public LRSchedule {
 public:
  // Errors: ValueError unless there are steps, for pct_start outside [0, 1], factors <= 0, another number of
  // values than groups, and cycle_momentum without a momentum.
  OneCycleLR(Optimizer& optimizer, OneCycleLROptions options);

 private:
  enum class Level { kFirst, kMax, kLast };
  struct Phase {
    double end;
    Level from, to;
  };
  void check_step() const override;  // Errors: ValueError after total_steps
  double rate(size_t group, double base, double now) const override;
  std::optional<double> momentum(size_t group) const override;
  double level(size_t group, Level level) const;
  // The present phase, and how far it has gone.
  std::pair<const Phase*, double> place() const;
  double anneal(double from, double to, double done) const;

  OneCycleLROptions options_;
  std::vector<Phase> phases_;
};

}  // namespace gradus::optim
