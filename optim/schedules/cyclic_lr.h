// Schedules that raise and lower the rate, once or repeatedly, and move the momentum in the opposite
// direction: CyclicLR, OneCycleLR.
#pragma once

#include "gradus/optim/schedules/lr_schedule.h"

namespace gradus::optim {

enum class CyclicMode {
  kTriangular,   // all cycles have the same height
  kTriangular2,  // each cycle has half the height of the previous one
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
  // Replaces mode: a function that gives the factor of the height, from the cycle's number (the first is
  // 1) or the epoch.
  std::function<double(double)> scale_fn = {};
  CyclicScale scale_mode = CyclicScale::kCycle;
  bool cycle_momentum = true;  // moves the momentum from max_momentum, at the lowest rate, to base_momentum
  PerGroup base_momentum = 0.8, max_momentum = 0.9;
};
// Moves the rate linearly from base_lr to max_lr in step_size_up steps and back in step_size_down steps,
// repeatedly. If the optimizer has betas, beta1 is the momentum.
// Source: Smith, WACV 2017.
class CyclicLR final : public LRSchedule {
 public:
  // Errors: ValueError for sizes < 1, for another number of values than groups, and for cycle_momentum
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
  double pct_start = 0.3;  // share of the steps in which the rate rises
  Anneal anneal_strategy = Anneal::kCos;
  bool cycle_momentum = true;  // max_momentum to base_momentum, at the highest rate, and back
  PerGroup base_momentum = 0.85, max_momentum = 0.95;
  double div_factor = 25;         // the first rate is max_lr / div_factor
  double final_div_factor = 1e4;  // the last rate is the first / final_div_factor
  bool three_phase = false;       // up, down to the first rate in as many steps, then to the last rate
};
// Takes one step per batch, total_steps at most. The rate rises to max_lr, and falls to far below its first
// value. The groups' own rates have no effect.
// Source: Smith and Topin, arXiv:1708.07120.
class OneCycleLR final : public LRSchedule {
 public:
  // Errors: ValueError without steps, for pct_start outside [0, 1], factors <= 0, another number of values
  // than groups, and cycle_momentum without a momentum.
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
  // Returns the present phase, and the completed part of it, from 0 to 1.
  std::pair<const Phase*, double> place() const;
  double anneal(double from, double to, double done) const;

  OneCycleLROptions options_;
  std::vector<Phase> phases_;
};

}  // namespace gradus::optim
