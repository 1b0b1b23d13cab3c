// Learning-rate schedules. LRSchedule counts epochs and sets the rate of each parameter group; the derived
// classes and options compute a rate from the epoch, the group's base rate (that at the first schedule's
// construction) and its current rate. Most use a recurrence from the current rate, as PyTorch does, so that
// schedules combine. Rates are computed by the same floating-point operations in the same order as in
// PyTorch, and this file is compiled without contraction to fused multiply-adds, so rates are bitwise equal
// to PyTorch's if no library function (cos, pow) is involved.
#include "gradus/optim/schedules/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gradus::optim {

using std::numbers::pi;

PerGroup::PerGroup(double value) : values_{value} {}
PerGroup::PerGroup(std::initializer_list<double> values) : values_(values) {}
PerGroup::PerGroup(std::vector<double> values) : values_(std::move(values)) {}
void PerGroup::check(const char* op, const char* name, size_t groups) const {
  if (values_.size() != 1 && values_.size() != groups)
    throw ValueError(op, "expected one ", name, ", or one for each of ", groups, " groups, got ",
                     values_.size());
}

LRSchedule::LRSchedule(Optimizer& optimizer, const char* kind) : optimizer_(optimizer), kind_(kind) {
  for (size_t g = 0; g < optimizer.num_groups(); ++g) {
    base_lrs_.push_back(optimizer.initial_lr(g));
    optimizer.set_initial_lr(g, base_lrs_[g]);
  }
}

std::vector<double> LRSchedule::last_lr() const {
  std::vector<double> rates;
  for (size_t g = 0; g < optimizer_.num_groups(); ++g) rates.push_back(optimizer_.lr(g));
  return rates;
}

// Sets the rates that rate(group, base_lr, current_lr) returns, and the momenta. Checks all rates before it
// sets one.
void LRSchedule::set_rates(double (LRSchedule::*rate)(size_t, double, double) const) {
  // Groups added to the optimizer later start at their own learning rate.
  for (size_t g = base_lrs_.size(); g < optimizer_.num_groups(); ++g)
    base_lrs_.push_back(optimizer_.initial_lr(g));
  std::vector<double> rates;
  for (size_t g = 0; g < base_lrs_.size(); ++g) {
    rates.push_back((this->*rate)(g, base_lrs_[g], optimizer_.lr(g)));
    if (!(rates[g] >= 0))
      throw ValueError(kind_, "step ", epoch_, " would set the learning rate of group ", g, " to ", rates[g],
                       ", expected >= 0; the rate was ", optimizer_.lr(g), ", the initial one is ",
                       base_lrs_[g]);
  }
  for (size_t g = 0; g < base_lrs_.size(); ++g) {
    optimizer_.set_lr(g, rates[g]);
    if (const std::optional<double> m = momentum(g)) optimizer_.set_momentum(g, *m);
  }
}

void LRSchedule::start() {
  epoch_ = 0;
  steps_ = 1;
  on_epoch_change();
  set_rates(&LRSchedule::rate);
}

void LRSchedule::step() {
  check_step();
  ++epoch_, ++steps_;
  on_epoch_change();
  set_rates(&LRSchedule::rate);
}

void LRSchedule::restart() {
  epoch_ = 0;
  on_epoch_change();
  set_rates(&LRSchedule::rate_after_restart);
}

std::vector<std::pair<const char*, double*>> LRSchedule::extra_state() { return {}; }

State LRSchedule::state_dict() const {
  State state;
  state.numbers.emplace_back("last_epoch", double(epoch_));
  state.numbers.emplace_back("num_steps", double(steps_));
  for (size_t g = 0; g < optimizer_.num_groups(); ++g) {
    // A group added since the last step is not in base_lrs_ yet.
    state.numbers.emplace_back(concat("base_lr.", g),
                               g < base_lrs_.size() ? base_lrs_[g] : optimizer_.initial_lr(g));
    state.numbers.emplace_back(concat("last_lr.", g), optimizer_.lr(g));
  }
  for (const auto& [name, value] : const_cast<LRSchedule*>(this)->extra_state())
    state.numbers.emplace_back(name, *value);
  return state;
}

void LRSchedule::load_state_dict(const State& state) {
  StateReader in(state);
  read_state(in);
  in.finish("this schedule");
}

void LRSchedule::read_state(StateReader in) {
  // -1: SequentialLR has not started this schedule yet.
  const int64_t epoch = in.count("last_epoch", -1), steps = in.count("num_steps");
  std::vector<double> base_lrs, rates, extra;
  for (size_t g = 0; g < optimizer_.num_groups(); ++g) {
    base_lrs.push_back(in.rate(concat("base_lr.", g)));
    rates.push_back(in.rate(concat("last_lr.", g)));
  }
  for (const auto& [name, value] : extra_state()) extra.push_back(in.rate(name));
  in.on_success([=, this] {
    epoch_ = epoch, steps_ = steps, base_lrs_ = base_lrs;
    for (size_t i = 0; const auto& [name, value] : extra_state()) *value = extra[i++];
    for (size_t g = 0; g < rates.size(); ++g) optimizer_.set_lr(g, rates[g]);
  });
}

namespace {
void check_factors(const char* op, const std::vector<std::function<double(int64_t)>>& fs, size_t groups) {
  if (fs.size() != groups)
    throw ValueError(op, "expected a function for each of ", groups, " groups, got ", fs.size());
  for (const auto& f : fs)
    if (!f) throw ValueError(op, "a function is empty");
}
}  // namespace

LambdaLR::LambdaLR(Optimizer& optimizer, Factor f)
    : LambdaLR(optimizer, std::vector<Factor>(optimizer.num_groups(), f)) {}
LambdaLR::LambdaLR(Optimizer& optimizer, std::vector<Factor> fs)
    : LRSchedule(optimizer, "LambdaLR"), factors_(std::move(fs)) {
  check_factors("LambdaLR", factors_, optimizer.num_groups());
  start();
}
double LambdaLR::rate(size_t group, double base_lr, double current_lr) const {
  return group < factors_.size() ? base_lr * factors_[group](last_epoch()) : current_lr;
}

MultiplicativeLR::MultiplicativeLR(Optimizer& optimizer, Factor f)
    : MultiplicativeLR(optimizer, std::vector<Factor>(optimizer.num_groups(), f)) {}
MultiplicativeLR::MultiplicativeLR(Optimizer& optimizer, std::vector<Factor> fs)
    : LRSchedule(optimizer, "MultiplicativeLR"), factors_(std::move(fs)) {
  check_factors("MultiplicativeLR", factors_, optimizer.num_groups());
  start();
}
// Groups that were added after construction have no factor, and keep their rate.
double MultiplicativeLR::rate(size_t group, double, double current_lr) const {
  return last_epoch() > 0 ? rate_after_restart(group, 0, current_lr) : current_lr;
}
double MultiplicativeLR::rate_after_restart(size_t group, double, double current_lr) const {
  return group < factors_.size() ? current_lr * factors_[group](last_epoch()) : current_lr;
}

void StepLROptions::check() const {
  check_option(step_size >= 1, kName, "step_size", ">= 1", double(step_size));
}
double StepLROptions::rate(int64_t epoch, double, double current_lr) const {
  return epoch == 0 || epoch % step_size != 0 ? current_lr : current_lr * gamma;
}

void MultiStepLROptions::check() const {
  for (size_t i = 1; i < milestones.size(); ++i)
    check_option(milestones[i - 1] <= milestones[i], kName, "milestones", "ascending", double(milestones[i]));
}
double MultiStepLROptions::rate(int64_t epoch, double, double current_lr) const {
  const auto times = std::count(milestones.begin(), milestones.end(), epoch);
  return times == 0 ? current_lr : current_lr * std::pow(gamma, double(times));
}
double MultiStepLROptions::rate_after_restart(double base_lr) const {
  const auto times = std::count_if(milestones.begin(), milestones.end(), [](int64_t m) { return m <= 0; });
  return base_lr * std::pow(gamma, double(times));
}

void ConstantLROptions::check() const {
  check_option(factor > 0 && factor <= 1, kName, "factor", "in (0, 1]", factor);
  check_option(total_iters >= 0, kName, "total_iters", ">= 0", double(total_iters));
}
double ConstantLROptions::rate(int64_t epoch, double, double current_lr) const {
  if (epoch == 0) return current_lr * factor;
  return epoch == total_iters ? current_lr * (1.0 / factor) : current_lr;
}
double ConstantLROptions::rate_after_restart(double base_lr) const {
  return base_lr * (factor + (total_iters <= 0 ? 1 - factor : 0.0));
}

void LinearLROptions::check() const {
  check_option(start_factor > 0 && start_factor <= 1, kName, "start_factor", "in (0, 1]", start_factor);
  check_option(end_factor >= 0 && end_factor <= 1, kName, "end_factor", "in [0, 1]", end_factor);
  check_option(total_iters >= 1, kName, "total_iters", ">= 1", double(total_iters));
}
double LinearLROptions::rate(int64_t epoch, double, double current_lr) const {
  if (epoch == 0) return current_lr * start_factor;
  if (epoch > total_iters) return current_lr;
  return current_lr * (1.0 + (end_factor - start_factor) / (double(total_iters) * start_factor +
                                                            double(epoch - 1) * (end_factor - start_factor)));
}

void PolynomialLROptions::check() const {
  check_option(total_iters >= 1, kName, "total_iters", ">= 1", double(total_iters));
}
double PolynomialLROptions::rate(int64_t epoch, double, double current_lr) const {
  if (epoch == 0 || epoch > total_iters) return current_lr;
  const double total = double(total_iters);
  return current_lr * std::pow((1.0 - double(epoch) / total) / (1.0 - double(epoch - 1) / total), power);
}

void CosineAnnealingLROptions::check() const {
  check_option(t_max >= 1, kName, "t_max", ">= 1", double(t_max));
}
double CosineAnnealingLROptions::rate(int64_t epoch, double base_lr, double current_lr) const {
  const double t = double(t_max);
  if (epoch == 0) return current_lr;
  // In the previous epoch the rate was eta_min, from which the recurrence below cannot continue.
  if ((epoch - 1 - t_max) % (2 * t_max) == 0)
    return current_lr + (base_lr - eta_min) * (1 - std::cos(pi / t)) / 2;
  return (1 + std::cos(pi * double(epoch) / t)) / (1 + std::cos(pi * (double(epoch) - 1) / t)) *
             (current_lr - eta_min) +
         eta_min;
}

CosineAnnealingWarmRestarts::CosineAnnealingWarmRestarts(Optimizer& optimizer,
                                                         CosineAnnealingWarmRestartsOptions options)
    : LRSchedule(optimizer, "CosineAnnealingWarmRestarts"), options_(options) {
  check_option(options_.t_0 >= 1, "CosineAnnealingWarmRestarts", "t_0", ">= 1", double(options_.t_0));
  check_option(options_.t_mult >= 1, "CosineAnnealingWarmRestarts", "t_mult", ">= 1",
               double(options_.t_mult));
  start();
}
void CosineAnnealingWarmRestarts::on_epoch_change() {
  if (last_epoch() == 0) {
    since_restart_ = 0;
    period_ = double(options_.t_0);
  } else if (++since_restart_ >= period_) {
    since_restart_ -= period_;
    period_ *= double(options_.t_mult);
  }
}
double CosineAnnealingWarmRestarts::rate(size_t, double base_lr, double) const {
  const double eta = options_.eta_min;
  return eta + (base_lr - eta) * (1 + std::cos(pi * since_restart_ / period_)) / 2;
}
std::vector<std::pair<const char*, double*>> CosineAnnealingWarmRestarts::extra_state() {
  return {{"t_cur", &since_restart_}, {"t_i", &period_}};
}

SWALR::SWALR(Optimizer& optimizer, SWALROptions options)
    : LRSchedule(optimizer, "SWALR"), options_(std::move(options)) {
  options_.swa_lr->check("SWALR", "swa_lr", optimizer.num_groups());
  check_option(options_.anneal_epochs >= 0, "SWALR", "anneal_epochs", ">= 0", double(options_.anneal_epochs));
  start();
}
// Reconstructs the start rate from the current rate and the weight of the previous step.
double SWALR::rate(size_t group, double, double current_lr) const {
  const double target_lr = (*options_.swa_lr)[group];
  // Returns the weight of the target rate after `steps` steps: rate = start (1 - weight) + target_lr weight.
  const auto weight = [&](int64_t steps) {
    const double t =
        std::max(0.0, std::min(1.0, double(steps) / double(std::max<int64_t>(1, options_.anneal_epochs))));
    return options_.anneal_strategy == Anneal::kLinear ? t : (1 - std::cos(pi * t)) / 2;
  };
  const int64_t steps = std::max<int64_t>(num_steps() - 1, options_.anneal_epochs == 0 ? 1 : 0);
  const double before = weight(steps - 1), after = weight(steps);
  const double start = before == 1 ? target_lr : (current_lr - before * target_lr) / (1 - before);
  return target_lr * after + start * (1 - after);
}

}  // namespace gradus::optim
