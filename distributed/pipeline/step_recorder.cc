// Implementation of StepRecorder.
#include "gradus/distributed/pipeline/step_recorder.h"

#include <chrono>

#include "gradus/tensor/base/error.h"
#include "gradus/tensor/runtime/allocator.h"

namespace gradus::dist::internal {

int64_t monotonic_now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void StepRecorder::keep(int steps) {
  if (steps < 0) throw ValueError("record_steps", "expected steps >= 0, got ", steps);
  keep_ = steps;
  steps_.clear();
}

void StepRecorder::end_step() {
  if (keep_ == 0) return;
  if (int(steps_.size()) == keep_) steps_.pop_front();
  steps_.push_back(std::move(step_));
}

void StepRecorder::end() {
  if (keep_ == 0) return;
  step_.actions.back().end = monotonic_now();
  step_.actions.back().held_bytes = memory_stats().live_bytes;
}

void StepRecorder::record_message(bool received, int peer, const Address& address, const Tensor& x) {
  if (keep_ == 0) return;
  const int64_t now = monotonic_now();
  step_.messages.push_back({.action = int(step_.actions.size()) - 1,
                            .received = received,
                            .peer = peer,
                            .stage = address.stage,
                            .micro_batch = address.micro_batch,
                            .slot = address.slot,
                            .gradient = address.gradient,
                            .bytes = x.defined() ? x.nbytes() : 0,
                            .begin = message_begin_,
                            .end = now});
  if (received) step_.actions.back().begin += now - message_begin_;
}

}  // namespace gradus::dist::internal
