// StepOutcome: whether an optimizer stepped, or its step was left out. Where a GPU decides that, the answer
// is there, and only who asks waits for it:
//
//   scaler.step(opt);                        // does not wait
//   if (scaler.step(opt)) schedule.step();   // waits
#pragma once

#include <utility>

#include "gradus/tensor/tensor.h"

namespace gradus::optim {

class StepOutcome {
 public:
  StepOutcome(bool stepped) : stepped_(stepped) {}
  // The outcome is that a step was left out if `found`, f32[], is not 0.
  static StepOutcome left_out_if(Tensor found) {
    StepOutcome outcome(true);
    outcome.found_ = std::move(found);
    return outcome;
  }

  // Waits for the device, if it was the one that decided. It then throws what a wait throws: a DeviceFailure,
  // and errors of values that kernels have found.
  operator bool() const { return found_.defined() ? found_.item<float>() == 0 : stepped_; }

 private:
  bool stepped_;
  Tensor found_;
};

}  // namespace gradus::optim
