#include "gradus/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>

namespace gradus::optim {

LRSchedule::LRSchedule(Optimizer& optimizer) : optimizer_(optimizer), base_(last_lr()) {}

std::vector<double> LRSchedule::last_lr() const {
  std::vector<double> rates;
  for (size_t g = 0; g < optimizer_.num_groups(); ++g) rates.push_back(optimizer_.lr(g));
  return rates;
}

void LRSchedule::set_rates() {
  for (size_t g = 0; g < base_.size(); ++g) optimizer_.set_lr(g, rate(base_[g], epoch_));
}

void LRSchedule::step() {
  // Groups added since start at the rate they have.
  for (size_t g = base_.size(); g < optimizer_.num_groups(); ++g) base_.push_back(optimizer_.lr(g));
  ++epoch_;
  set_rates();
}

State LRSchedule::state_dict() const {
  State state;
  state.numbers.emplace_back("last_epoch", double(epoch_));
  // A group added since the last step has the rate it was added with.
  for (size_t g = 0; g < optimizer_.num_groups(); ++g)
    state.numbers.emplace_back(concat("base_lr.", g), g < base_.size() ? base_[g] : optimizer_.lr(g));
  return state;
}

void LRSchedule::load_state_dict(const State& state) {
  std::map<std::string, double> numbers(state.numbers.begin(), state.numbers.end());
  std::string wrong;
  const auto take = [&](const std::string& name) {
    const auto node = numbers.extract(name);
    if (!node) return wrong += "\n  missing: " + name, 0.0;
    if (!(node.mapped() >= 0 && node.mapped() < 0x1p53))
      wrong += concat("\n  ", name, ": out of range: ", node.mapped());
    return node.mapped();
  };
  const double epoch = take("last_epoch");
  std::vector<double> base;
  for (size_t g = 0; g < optimizer_.num_groups(); ++g) base.push_back(take(concat("base_lr.", g)));
  for (const auto& [name, v] : numbers) wrong += "\n  unexpected: " + name;
  if (!wrong.empty()) throw ValueError("load_state_dict", "the state does not fit this schedule:", wrong);
  epoch_ = static_cast<int64_t>(epoch);
  base_ = std::move(base);
  set_rates();
}

StepLR::StepLR(Optimizer& optimizer, StepLROptions options) : LRSchedule(optimizer), options_(options) {
  check_option(options_.step_size >= 1, "StepLR", "step_size", ">= 1", double(options_.step_size));
}
double StepLR::rate(double base, int64_t epoch) const {
  return base * std::pow(options_.gamma, double(epoch / options_.step_size));
}

MultiStepLR::MultiStepLR(Optimizer& optimizer, MultiStepLROptions options)
    : LRSchedule(optimizer), options_(options) {
  const std::vector<int64_t>& m = options_.milestones;
  for (size_t i = 1; i < m.size(); ++i)
    check_option(m[i - 1] <= m[i], "MultiStepLR", "milestones", "ascending", double(m[i]));
}
double MultiStepLR::rate(double base, int64_t epoch) const {
  const std::vector<int64_t>& m = options_.milestones;
  return base * std::pow(options_.gamma, double(std::upper_bound(m.begin(), m.end(), epoch) - m.begin()));
}

ExponentialLR::ExponentialLR(Optimizer& optimizer, ExponentialLROptions options)
    : LRSchedule(optimizer), options_(options) {}
double ExponentialLR::rate(double base, int64_t epoch) const {
  return base * std::pow(options_.gamma, double(epoch));
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, CosineAnnealingLROptions options)
    : LRSchedule(optimizer), options_(options) {
  check_option(options_.t_max >= 1, "CosineAnnealingLR", "t_max", ">= 1", double(options_.t_max));
}
double CosineAnnealingLR::rate(double base, int64_t epoch) const {
  const double phase = std::numbers::pi * double(epoch) / double(options_.t_max);
  return options_.eta_min + (base - options_.eta_min) * (1 + std::cos(phase)) / 2;
}

}  // namespace gradus::optim
