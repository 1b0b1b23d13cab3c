// StepRecorder: notes what an executor does. While it is off, each call costs a branch.
#pragma once

#include <deque>

#include "gradus/distributed/group/mailbox.h"
#include "gradus/distributed/pipeline/pipeline_record.h"

namespace gradus::dist::internal {

// Returns nanoseconds of the host's monotonic clock.
int64_t monotonic_now();

class StepRecorder {
 public:
  // Keeps the last `steps` steps from now on; 0: none.
  void keep(int steps);
  const std::deque<StepRecord>& steps() const { return steps_; }

  void begin_step(uint64_t number) {
    if (keep_ > 0) step_ = {.number = number};
  }
  void end_step();  // a step that fails has no end, and is dropped
  void begin(const Action& action) {
    if (keep_ > 0) step_.actions.push_back({.action = action, .begin = monotonic_now()});
  }
  void end();
  // Of gradients, given to the all-reduce over replicas.
  void reduced(int64_t bytes) { step_.reduced_bytes = bytes; }

  // Surround a call of the mailbox. An action is recorded as if it waited first: what it computed before, a
  // forward once more, belongs to it.
  void begin_message() {
    if (keep_ > 0) message_begin_ = monotonic_now();
  }
  void sent(int to, const Address& address, const Tensor& x) { note(false, to, address, x); }
  void received(int from, const Address& address, const Tensor& x) { note(true, from, address, x); }

 private:
  void note(bool received, int peer, const Address& address, const Tensor& x);

  int keep_ = 0;
  StepRecord step_;
  int64_t message_begin_ = 0;
  std::deque<StepRecord> steps_;
};

}  // namespace gradus::dist::internal
