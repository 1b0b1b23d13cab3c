// StepOutcome: whether an optimizer stepped or skipped its step. If a GPU decides that, the outcome stays on the GPU,
// and the conversion to bool waits for it:
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

  // Waits for the device if the outcome is there. Errors: as for every wait, DeviceFailure and errors of values that
  // kernels have found.
  operator bool() const { return found_.defined() ? found_.item<float>() == 0 : stepped_; }

 private:
  bool stepped_;
  Tensor found_;
};

}  // namespace gradus::optim
