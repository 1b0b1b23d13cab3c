// Learning-rate schedules. Each computes the rate of every group from its rate at construction and the number
// of step() calls, so a schedule that is resumed continues exactly.
//
//   optim::StepLR schedule(opt, {.step_size = 1, .gamma = 0.7});
//   for (int epoch = 1; epoch <= 14; ++epoch) { train(); schedule.step(); }
#pragma once

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

class LRSchedule {
 public:
  virtual ~LRSchedule() = default;
  LRSchedule(const LRSchedule&) = delete;
  LRSchedule& operator=(const LRSchedule&) = delete;

  // Goes one epoch (or whatever the caller counts) further and sets the optimizer's rates.
  void step();
  int64_t last_epoch() const { return epoch_; }
  std::vector<double> last_lr() const;  // per group

  State state_dict() const;
  // Also sets the optimizer's rates. Errors: ValueError listing what does not fit; nothing is changed then.
  void load_state_dict(const State& state);

 protected:
  // `optimizer` must outlive the schedule.
  explicit LRSchedule(Optimizer& optimizer);
  // The rate after `epoch` steps of a group that started at `base`.
  virtual double rate(double base, int64_t epoch) const = 0;

 private:
  void set_rates();
  Optimizer& optimizer_;
  std::vector<double> base_;
  int64_t epoch_ = 0;
};

struct StepLROptions {
  Required<int64_t> step_size;
  double gamma = 0.1;
};
// base gamma^floor(epoch / step_size)
class StepLR final : public LRSchedule {
 public:
  StepLR(Optimizer& optimizer, StepLROptions options);  // Errors: ValueError for step_size < 1

 private:
  double rate(double base, int64_t epoch) const override;
  StepLROptions options_;
};

struct MultiStepLROptions {
  std::vector<int64_t> milestones;  // ascending
  double gamma = 0.1;
};
// base gamma^(number of milestones <= epoch)
class MultiStepLR final : public LRSchedule {
 public:
  MultiStepLR(Optimizer& optimizer, MultiStepLROptions options);  // Errors: ValueError unless ascending

 private:
  double rate(double base, int64_t epoch) const override;
  MultiStepLROptions options_;
};

struct ExponentialLROptions {
  Required<double> gamma;
};
// base gamma^epoch
class ExponentialLR final : public LRSchedule {
 public:
  ExponentialLR(Optimizer& optimizer, ExponentialLROptions options);

 private:
  double rate(double base, int64_t epoch) const override;
  ExponentialLROptions options_;
};

struct CosineAnnealingLROptions {
  Required<int64_t> t_max;
  double eta_min = 0;
};
// eta_min + (base - eta_min) (1 + cos(pi epoch / t_max)) / 2. Source: Loshchilov and Hutter, ICLR 2017,
// without restarts.
class CosineAnnealingLR final : public LRSchedule {
 public:
  CosineAnnealingLR(Optimizer& optimizer,
                    CosineAnnealingLROptions options);  // Errors: ValueError for t_max < 1

 private:
  double rate(double base, int64_t epoch) const override;
  CosineAnnealingLROptions options_;
};

}  // namespace gradus::optim
