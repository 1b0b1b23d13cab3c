// Learning-rate schedules, as torch.optim.lr_scheduler. The base rates are the groups' rates at the
// construction of the optimizer's first schedule. Most schedules compute the new rate from the current one,
// so that schedules can be combined with each other and with set_lr. A schedule's constructor sets the rates
// of epoch 0. The optimizer must outlive the schedule.
//
//   optim::StepLR schedule(opt, {.step_size = 1, .gamma = 0.7});
//   for (int epoch = 1; epoch <= 14; ++epoch) { train(); schedule.step(); }
//
// In the formulas below, base is the group's base rate. joined_lr.h has schedules of schedules and
// ReduceLROnPlateau.
#pragma once

#include <functional>
#include <initializer_list>

#include "gradus/optim/optimizer.h"

namespace gradus::optim {

// An option with one value for all groups, or one value per group.
class PerGroup {
 public:
  PerGroup(double value);
  PerGroup(std::initializer_list<double> values);
  PerGroup(std::vector<double> values);
  double operator[](size_t group) const { return values_[values_.size() == 1 ? 0 : group]; }
  // Throws ValueError naming `op` and the option unless the option has one value, or one per group.
  void check(const char* op, const char* name, size_t groups) const;

 private:
  std::vector<double> values_;
};

class LRSchedule {
 public:
  virtual ~LRSchedule() = default;
  LRSchedule(const LRSchedule&) = delete;
  LRSchedule& operator=(const LRSchedule&) = delete;

  // Advances by one epoch (or by another unit, such as a batch) and sets the optimizer's learning rates.
  // Errors: ValueError for a rate below 0, naming the schedule, the step and the rate. All rates are then
  // unchanged.
  virtual void step();
  // Goes back to epoch 0 and sets the rates of that epoch. Called by SequentialLR at this schedule's
  // milestone.
  virtual void restart();
  int64_t last_epoch() const { return epoch_; }
  std::vector<double> last_lr() const;  // the current rate of each group
  const Optimizer& optimizer() const { return optimizer_; }

  virtual State state_dict() const;
  // Loads a state, and sets the optimizer's learning rates.
  // Errors: ValueError listing missing, unexpected and mismatching entries. The schedule is then unchanged.
  void load_state_dict(const State& state);
  // Reads the schedule's part of a larger state, and registers the changes with in.on_success().
  virtual void read_state(StateReader in);

 protected:
  // `kind` is the schedule's name in errors: "StepLR". The constructor of a derived class must end with
  // start().
  explicit LRSchedule(Optimizer& optimizer, const char* kind = "LRSchedule");
  // Sets the rates of epoch 0.
  void start();
  void set_epoch(int64_t epoch) { epoch_ = epoch; }
  // Returns 1 (for start()) plus the number of calls of step(), including a call in progress.
  int64_t num_steps() const { return steps_; }
  Optimizer& optimizer() { return optimizer_; }

  // Throws if the schedule has no next epoch.
  virtual void check_step() const {}
  // Called after last_epoch() has changed: to 0 by start() or restart(), else by step().
  virtual void on_epoch_change() {}
  // Returns a group's rate in epoch last_epoch(), from its base rate and its current rate.
  virtual double rate(size_t /*group*/, double /*base_lr*/, double current_lr) const { return current_lr; }
  // The same for epoch 0 after restart().
  virtual double rate_after_restart(size_t group, double base_lr, double current_lr) const {
    return rate(group, base_lr, current_lr);
  }
  // Returns a group's momentum in epoch last_epoch(); nullopt if the schedule does not set the momentum.
  virtual std::optional<double> momentum(size_t /*group*/) const { return {}; }
  // Returns names of and pointers to further numbers of a derived class's state.
  virtual std::vector<std::pair<const char*, double*>> extra_state();

 private:
  friend class SequentialLR;
  void set_rates(double (LRSchedule::*rate)(size_t, double, double) const);
  Optimizer& optimizer_;
  const char* const kind_;
  std::vector<double> base_lrs_;
  int64_t epoch_ = 0, steps_ = 0;
};

// base f(epoch), with one f for all groups, or one per group. Groups without an f, which were added to the
// optimizer later, keep their rate, also below.
class LambdaLR final : public LRSchedule {
 public:
  using Factor = std::function<double(int64_t epoch)>;
  LambdaLR(Optimizer& optimizer, Factor f);
  LambdaLR(Optimizer& optimizer, std::vector<Factor> fs);  // Errors: ValueError for another number, or null

 private:
  double rate(size_t group, double base_lr, double current_lr) const override;
  std::vector<Factor> factors_;
};

// The previous rate times f(epoch), from epoch 1 on; after restart() (in a SequentialLR) from epoch 0 on.
class MultiplicativeLR final : public LRSchedule {
 public:
  using Factor = std::function<double(int64_t epoch)>;
  MultiplicativeLR(Optimizer& optimizer, Factor f);
  MultiplicativeLR(Optimizer& optimizer, std::vector<Factor> fs);  // Errors: as LambdaLR

 private:
  double rate(size_t group, double base_lr, double current_lr) const override;
  double rate_after_restart(size_t group, double base_lr, double current_lr) const override;
  std::vector<Factor> factors_;
};

// A schedule whose rates follow from the epoch and the options O alone, for all groups. O has
//   static constexpr const char* kName;                              the schedule's name in errors
//   void check() const;                                              throws ValueError if out of range
//   double rate(int64_t epoch, double base_lr, double current_lr) const;     see LRSchedule::rate
//   double rate_after_restart(double base_lr) const;                 see LRSchedule::rate_after_restart
template <class O> class FormulaLR final : public LRSchedule {
 public:
  explicit FormulaLR(Optimizer& optimizer, O options = {})
      : LRSchedule(optimizer, O::kName), options_(std::move(options)) {
    options_.check();
    start();
  }

 private:
  double rate(size_t, double base_lr, double current_lr) const override {
    return options_.rate(last_epoch(), base_lr, current_lr);
  }
  double rate_after_restart(size_t, double base_lr, double) const override {
    return options_.rate_after_restart(base_lr);
  }
  O options_;
};

struct StepLROptions {
  Required<int64_t, "step_size"> step_size;  // at least 1
  double gamma = 0.1;

  static constexpr const char* kName = "StepLR";
  void check() const;
  double rate(int64_t epoch, double base_lr, double current_lr) const;
  double rate_after_restart(double base_lr) const { return base_lr; }
};
// base gamma^floor(epoch / step_size)
using StepLR = FormulaLR<StepLROptions>;

struct MultiStepLROptions {
  std::vector<int64_t> milestones = {};  // ascending; a milestone that is listed twice counts twice
  double gamma = 0.1;

  static constexpr const char* kName = "MultiStepLR";
  void check() const;
  double rate(int64_t epoch, double base_lr, double current_lr) const;
  double rate_after_restart(double base_lr) const;
};
// base gamma^(number of milestones <= epoch)
using MultiStepLR = FormulaLR<MultiStepLROptions>;

struct ConstantLROptions {
  double factor = 1.0 / 3;  // in (0, 1]
  int64_t total_iters = 5;  // at least 0

  static constexpr const char* kName = "ConstantLR";
  void check() const;
  double rate(int64_t epoch, double base_lr, double current_lr) const;
  double rate_after_restart(double base_lr) const;
};
// factor base before epoch total_iters, then base: warm-up with a constant rate.
using ConstantLR = FormulaLR<ConstantLROptions>;

struct LinearLROptions {
  double start_factor = 1.0 / 3, end_factor = 1;  // in (0, 1] and [0, 1]
  int64_t total_iters = 5;                        // at least 1

  static constexpr const char* kName = "LinearLR";
  void check() const;
  double rate(int64_t epoch, double base_lr, double current_lr) const;
  double rate_after_restart(double base_lr) const { return base_lr * start_factor; }
};
// base (start_factor + (end_factor - start_factor) min(epoch, total_iters) / total_iters): linear warm-up.
using LinearLR = FormulaLR<LinearLROptions>;

struct ExponentialLROptions {
  Required<double, "gamma"> gamma;

  static constexpr const char* kName = "ExponentialLR";
  void check() const {}
  double rate(int64_t epoch, double, double current_lr) const {
    return epoch == 0 ? current_lr : current_lr * gamma;
  }
  double rate_after_restart(double base_lr) const { return base_lr; }
};
// base gamma^epoch
using ExponentialLR = FormulaLR<ExponentialLROptions>;

struct PolynomialLROptions {
  int64_t total_iters = 5;  // at least 1
  double power = 1;

  static constexpr const char* kName = "PolynomialLR";
  void check() const;
  double rate(int64_t epoch, double base_lr, double current_lr) const;
  double rate_after_restart(double base_lr) const { return base_lr; }
};
// base (1 - min(epoch, total_iters) / total_iters)^power
using PolynomialLR = FormulaLR<PolynomialLROptions>;

struct CosineAnnealingLROptions {
  Required<int64_t, "t_max"> t_max;  // at least 1
  double eta_min = 0;

  static constexpr const char* kName = "CosineAnnealingLR";
  void check() const;
  double rate(int64_t epoch, double base_lr, double current_lr) const;
  double rate_after_restart(double base_lr) const { return eta_min + (base_lr - eta_min) * 2 / 2; }
};
// eta_min + (base - eta_min) (1 + cos(pi epoch / t_max)) / 2.
// Source: Loshchilov and Hutter, ICLR 2017, without restarts.
using CosineAnnealingLR = FormulaLR<CosineAnnealingLROptions>;

struct CosineAnnealingWarmRestartsOptions {
  Required<int64_t, "t_0"> t_0;  // length of the first period, in epochs
  int64_t t_mult = 1;            // each period is this many times as long as the previous one
  double eta_min = 0;
};
// eta_min + (base - eta_min) (1 + cos(pi t / T)) / 2, where t is the number of epochs since the last restart
// and T the length of the current period. Source: Loshchilov and Hutter, ICLR 2017.
class CosineAnnealingWarmRestarts final : public LRSchedule {
 public:
  // Errors: ValueError for t_0 < 1 or t_mult < 1.
  CosineAnnealingWarmRestarts(Optimizer& optimizer, CosineAnnealingWarmRestartsOptions options);

 private:
  void on_epoch_change() override;
  double rate(size_t group, double base_lr, double current_lr) const override;
  std::vector<std::pair<const char*, double*>> extra_state() override;
  CosineAnnealingWarmRestartsOptions options_;
  double since_restart_ = 0, period_ = 0;
};

enum class Anneal { kCos, kLinear };

struct SWALROptions {
  Required<PerGroup, "swa_lr"> swa_lr;
  int64_t anneal_epochs = 10;
  Anneal anneal_strategy = Anneal::kCos;
};
// Anneals the current rate to swa_lr over anneal_epochs epochs and then keeps it, for stochastic weight
// averaging.
// Source: Izmailov et al., UAI 2018.
class SWALR final : public LRSchedule {
 public:
  // Errors: ValueError for anneal_epochs < 0, or another number of rates than groups.
  SWALR(Optimizer& optimizer, SWALROptions options);

 private:
  double rate(size_t group, double base_lr, double current_lr) const override;
  SWALROptions options_;
};

}  // namespace gradus::optim
