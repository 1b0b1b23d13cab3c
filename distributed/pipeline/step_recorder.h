// StepRecorder: records the actions and messages of an executor (executor.h), which makes all calls on one
// thread. While recording is off, each call costs one branch. gathered_records collects the records of all
// ranks, with times in the first rank's clock.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "gradus/distributed/group/mailbox.h"
#include "gradus/distributed/pipeline/pipeline_record.h"

namespace gradus::dist::internal {

// Returns nanoseconds of the host's monotonic clock.
int64_t monotonic_now();

class StepRecorder {
 public:
  // Discards the recorded steps, and records the last `steps` steps from now on; 0 stops recording.
  // Errors: ValueError unless steps >= 0.
  void record_last(int steps);
  const std::deque<StepRecord>& steps() const { return steps_; }

  void begin_step(uint64_t number) {
    if (max_steps_ > 0) step_ = {.number = number};
  }
  void end_step();  // a step that fails has no end_step(), and is discarded
  // begin() and end() surround an action; actions do not overlap.
  void begin(const Action& action) {
    if (max_steps_ > 0) step_.actions.push_back({.action = action, .begin = monotonic_now()});
  }
  void end();
  // Sets the size of the gradients sent by the all-reduce over replicas.
  void set_all_reduce_bytes(int64_t bytes) { step_.all_reduce_bytes = bytes; }

  // begin_message, and sent or received, surround a call of the mailbox within an action. A receive adds
  // its waiting time to the action's begin, so that the action's duration is that of the computation.
  void begin_message() {
    if (max_steps_ > 0) message_begin_ = monotonic_now();
  }
  void sent(int to, const Address& address, const Tensor& x) { record_message(false, to, address, x); }
  void received(int from, const Address& address, const Tensor& x) { record_message(true, from, address, x); }

 private:
  void record_message(bool received, int peer, const Address& address, const Tensor& x);

  int max_steps_ = 0;
  StepRecord step_;
  int64_t message_begin_ = 0;
  std::deque<StepRecord> steps_;
};

// Returns (this rank's clock - the first member's clock) in nanoseconds, measured as in NTP: the error is at
// most half of the shortest of several round trips. Collective; the group must have no other traffic.
int64_t clock_offset(const Group& group, const std::function<int64_t()>& now);

// Returns the members' records, in order, on the group's first rank, and an empty list on other ranks. Times
// are converted to the first rank's clock. Collective; the group must have no other traffic.
std::vector<RankRecord> gathered_records(std::vector<RankRecord> local, const Group& group);

}  // namespace gradus::dist::internal
