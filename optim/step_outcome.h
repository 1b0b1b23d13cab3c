// StepOutcome: whether an optimizer made a step or skipped it. If the decision is made on a GPU, the outcome is
// a tensor on the GPU, and the conversion to bool waits for the GPU:
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
  // The step was skipped if `found`, f32[], is not 0.
  static StepOutcome skipped_if(Tensor found) {
    StepOutcome outcome(true);
    outcome.found_ = std::move(found);
    return outcome;
  }

  // Returns whether the optimizer stepped. Waits for the device if the outcome is on a device.
  // Errors: as every wait, DeviceFailure and errors that kernels have reported.
  operator bool() const { return found_.defined() ? found_.item<float>() == 0 : stepped_; }

 private:
  bool stepped_;
  Tensor found_;
};

}  // namespace gradus::optim
