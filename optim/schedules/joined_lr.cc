// SequentialLR and ChainedScheduler.
#include "gradus/optim/schedules/joined_lr.h"

#include <algorithm>

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

void ChainedScheduler::step() {
  for (LRSchedule* schedule : schedules()) schedule->step();
  set_epoch(last_epoch() + 1);
}

void ChainedScheduler::restart() {
  set_epoch(0);
  for (LRSchedule* schedule : schedules()) schedule->restart();
}

}  // namespace gradus::optim
