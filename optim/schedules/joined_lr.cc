// SequentialLR, ChainedScheduler and ReduceLROnPlateau, as in torch.optim.lr_scheduler. The joined schedules
// belong to the caller and to one optimizer, whose learning rates they set; step() is called once per epoch.
// set_epoch() sets only the count; start() and restart() go to epoch 0 and set its rates.
#include "gradus/optim/schedules/joined_lr.h"

#include <algorithm>
#include <limits>

namespace gradus::optim {

JoinedLR::JoinedLR(const char* kind, Optimizer& optimizer, std::vector<LRSchedule*> schedules)
    : LRSchedule(optimizer, kind), schedules_(std::move(schedules)) {
  if (schedules_.empty()) throw ValueError(kind, "expected at least one schedule");
  for (size_t i = 0; i < schedules_.size(); ++i) {
    if (!schedules_[i]) throw ValueError(kind, "schedule ", i, " is null");
    const LRSchedule& schedule = *schedules_[i];
    if (&schedule.optimizer() != &optimizer)
      throw ValueError(kind, "schedule ", i, " belongs to another optimizer");
  }
}

State JoinedLR::state_dict() const {
  State state = LRSchedule::state_dict();
  for (size_t i = 0; i < schedules_.size(); ++i)
    for (const auto& [name, value] : schedules_[i]->state_dict().numbers)
      state.numbers.emplace_back(concat("schedule.", i, '.', name), value);
  return state;
}

void JoinedLR::read_state(StateReader in) {
  LRSchedule::read_state(in);
  for (size_t i = 0; i < schedules_.size(); ++i)
    schedules_[i]->read_state(in.with_prefix(concat("schedule.", i)));
}

SequentialLR::SequentialLR(Optimizer& optimizer, std::vector<LRSchedule*> schedules,
                           std::vector<int64_t> milestones)
    : JoinedLR("SequentialLR", optimizer, std::move(schedules)), milestones_(std::move(milestones)) {
  constexpr const char* kOp = "SequentialLR";
  if (milestones_.size() + 1 != this->schedules().size())
    throw ValueError(kOp, "expected one milestone less than schedules, got ", milestones_.size(), " and ",
                     this->schedules().size());
  for (size_t i = 0; i < milestones_.size(); ++i)
    check_option(milestones_[i] >= (i ? milestones_[i - 1] : 1), kOp, "milestones", "ascending from 1 on",
                 double(milestones_[i]));
  // Resets the learning rates that the constructors of the schedules have set, and starts the first schedule.
  for (size_t g = 0; g < optimizer.num_groups(); ++g) optimizer.set_lr(g, optimizer.initial_lr(g));
  for (LRSchedule* schedule : this->schedules()) schedule->set_epoch(-1);
  this->schedules()[0]->start();
}

// milestones_[i] is the epoch at which schedule i + 1 begins.
void SequentialLR::step() {
  const int64_t epoch = last_epoch() + 1;
  const size_t i = static_cast<size_t>(std::upper_bound(milestones_.begin(), milestones_.end(), epoch) -
                                       milestones_.begin());
  if (i > 0 && milestones_[i - 1] == epoch)
    schedules()[i]->restart();
  else
    schedules()[i]->step();
  set_epoch(epoch);
}

void SequentialLR::restart() {
  set_epoch(0);
  schedules()[0]->restart();
}

ChainedScheduler::ChainedScheduler(Optimizer& optimizer, std::vector<LRSchedule*> schedules)
    : JoinedLR("ChainedScheduler", optimizer, std::move(schedules)) {}

void ChainedScheduler::step() {
  for (LRSchedule* schedule : schedules()) schedule->step();
  set_epoch(last_epoch() + 1);
}

void ChainedScheduler::restart() {
  set_epoch(0);
  for (LRSchedule* schedule : schedules()) schedule->restart();
}

namespace {
constexpr const char* kOp = "ReduceLROnPlateau";
}

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, ReduceLROnPlateauOptions options)
    : optimizer_(optimizer),
      options_(std::move(options)),
      best_(options_.mode == MetricMode::kMin ? std::numeric_limits<double>::infinity()
                                              : -std::numeric_limits<double>::infinity()) {
  check_option(options_.factor > 0 && options_.factor < 1, kOp, "factor", "in (0, 1)", options_.factor);
  check_option(options_.patience >= 0, kOp, "patience", ">= 0", double(options_.patience));
  check_option(options_.threshold >= 0, kOp, "threshold", ">= 0", options_.threshold);
  check_option(options_.cooldown >= 0, kOp, "cooldown", ">= 0", double(options_.cooldown));
  check_option(options_.eps >= 0, kOp, "eps", ">= 0", options_.eps);
  options_.min_lr.check(kOp, "min_lr", optimizer.num_groups());
}

// Better: beyond best * (1 -+ threshold) if relative, else beyond best -+ threshold.
bool ReduceLROnPlateau::is_better(double metric) const {
  const double threshold = options_.threshold;
  const bool relative = options_.threshold_mode == ThresholdMode::kRel;
  if (options_.mode == MetricMode::kMin)
    return metric < (relative ? best_ * (1.0 - threshold) : best_ - threshold);
  return metric > (relative ? best_ * (threshold + 1.0) : best_ + threshold);
}

void ReduceLROnPlateau::step(double metric) {
  ++epoch_;
  if (is_better(metric)) {
    best_ = metric;
    bad_epochs_ = 0;
  } else {
    ++bad_epochs_;
  }
  if (cooldown_remaining_ > 0) {
    --cooldown_remaining_;
    bad_epochs_ = 0;
  }
  if (bad_epochs_ <= options_.patience) return;
  for (size_t g = 0; g < optimizer_.num_groups(); ++g) {
    const double old = optimizer_.lr(g), lower = std::max(old * options_.factor, options_.min_lr[g]);
    if (old - lower > options_.eps) optimizer_.set_lr(g, lower);
  }
  cooldown_remaining_ = options_.cooldown;
  bad_epochs_ = 0;
}

std::vector<double> ReduceLROnPlateau::last_lr() const {
  std::vector<double> rates;
  for (size_t g = 0; g < optimizer_.num_groups(); ++g) rates.push_back(optimizer_.lr(g));
  return rates;
}

State ReduceLROnPlateau::state_dict() const {
  State state;
  state.numbers = {{"last_epoch", double(epoch_)},
                   {"best", best_},
                   {"num_bad_epochs", double(bad_epochs_)},
                   {"cooldown_counter", double(cooldown_remaining_)}};
  for (size_t g = 0; g < optimizer_.num_groups(); ++g)
    state.numbers.emplace_back(concat("last_lr.", g), optimizer_.lr(g));
  return state;
}

void ReduceLROnPlateau::load_state_dict(const State& state) {
  StateReader in(state);
  const int64_t epoch = in.count("last_epoch"), bad = in.count("num_bad_epochs"),
                cooldown = in.count("cooldown_counter");
  const double best = in.number("best");
  std::vector<double> rates;
  for (size_t g = 0; g < optimizer_.num_groups(); ++g) rates.push_back(in.rate(concat("last_lr.", g)));
  in.finish(kOp);
  epoch_ = epoch, best_ = best, bad_epochs_ = bad, cooldown_remaining_ = cooldown;
  for (size_t g = 0; g < rates.size(); ++g) optimizer_.set_lr(g, rates[g]);
}

}  // namespace gradus::optim
