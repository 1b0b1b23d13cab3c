// CyclicLR and OneCycleLR: schedules that raise and lower the learning rate, repeatedly or once, and change
// the momentum in the opposite direction. As in torch.optim.lr_scheduler; an epoch is a call of step().
#pragma once

#include "gradus/optim/schedules/lr_schedule.h"

namespace gradus::optim {

enum class CyclicMode {
  kTriangular,   // all cycles have the same amplitude
  kTriangular2,  // each cycle has half the amplitude of the previous one
  kExpRange      // the amplitude decreases as gamma^epoch
};
enum class CyclicScale { kCycle, kIterations };  // the argument of scale_fn: cycle number, or epoch

struct CyclicLROptions {
  Required<PerGroup, "base_lr"> base_lr;
  Required<PerGroup, "max_lr"> max_lr;
  int64_t step_size_up = 2000;
  int64_t step_size_down = 0;  // 0: as step_size_up
  CyclicMode mode = CyclicMode::kTriangular;
  double gamma = 1;
  // Replaces mode: returns the factor of the amplitude for a cycle number (from 1) or epoch.
  std::function<double(double)> scale_fn = {};
  CyclicScale scale_mode = CyclicScale::kCycle;
  bool cycle_momentum = true;  // momentum: max_momentum at base_lr, base_momentum at max_lr; false: unchanged
  PerGroup base_momentum = 0.8, max_momentum = 0.9;
};
// The rate increases linearly from base_lr to max_lr in step_size_up steps, and decreases in step_size_down
// steps, repeatedly. For optimizers with betas, beta1 is the momentum.
// Source: Smith, WACV 2017.
class CyclicLR final : public LRSchedule {
 public:
  // `optimizer` must outlive the schedule; its rates become base_lr.
  // Errors: ValueError for step_size_up < 1 or step_size_down < 0, for a number of values other than 1 and
  // the number of groups, and for cycle_momentum with an optimizer without momentum.
  CyclicLR(Optimizer& optimizer, CyclicLROptions options);

 private:
  double triangle_wave() const;  // position between base_lr (0) and max_lr (1)
  double scale() const;          // factor of the amplitude
  double rate(size_t group, double base_lr, double current_lr) const override;
  std::optional<double> momentum(size_t group) const override;
  CyclicLROptions options_;
};

struct OneCycleLROptions {
  Required<PerGroup, "max_lr"> max_lr;
  int64_t total_steps = 0;  // 0: epochs * steps_per_epoch
  int64_t epochs = 0, steps_per_epoch = 0;
  double pct_start = 0.3;  // fraction of the steps in which the rate increases
  Anneal anneal_strategy = Anneal::kCos;
  bool cycle_momentum = true;  // momentum: base_momentum at max_lr, else rises to max_momentum
  PerGroup base_momentum = 0.85, max_momentum = 0.95;
  double div_factor = 25;         // the first rate is max_lr / div_factor
  double final_div_factor = 1e4;  // the last rate is the first / final_div_factor
  bool three_phase = false;       // up to max_lr, down to the first rate in as many steps, then to the last
};
// step() after each batch, at most total_steps times. The rate increases from max_lr / div_factor to max_lr,
// and decreases to the last rate. Replaces the groups' rates. Source: Smith and Topin, arXiv:1708.07120.
class OneCycleLR final : public LRSchedule {
 public:
  // Errors: ValueError without total_steps or epochs and steps_per_epoch, for pct_start outside of [0, 1] or
  // factors <= 0; for numbers of values and for cycle_momentum as CyclicLR.
  OneCycleLR(Optimizer& optimizer, OneCycleLROptions options);

 private:
  enum class Level { kFirst, kMax, kLast };  // the rates between which a phase anneals
  struct Phase {
    double end;  // the epoch at which the rate is `to`
    Level from, to;
  };
  void check_step() const override;  // Errors: ValueError after total_steps
  double rate(size_t group, double base_lr, double current_lr) const override;
  std::optional<double> momentum(size_t group) const override;
  double level(size_t group, Level level) const;  // the group's rate at `level`
  // Returns the current phase, and the completed fraction of it, from 0 to 1.
  std::pair<const Phase*, double> current_phase() const;
  double anneal(double from, double to, double fraction) const;
  OneCycleLROptions options_;
  std::vector<Phase> phases_;
};

}  // namespace gradus::optim
