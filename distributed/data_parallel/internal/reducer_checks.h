// The reducer's checks of devices and finite gradients (AllReduceCallbackOptions::check_finite).
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/distributed/data_parallel/internal/attached_params.h"
#include "gradus/distributed/group/group.h"

namespace gradus::dist::internal {

// Checks that a parameter, or its gradient, can be averaged between ranks.
// Errors: DeviceError unless x is in host memory.
void check_can_average(std::string_view op, std::string_view what, const Tensor& x);

// check_finite: searches the gradients of one backward for NaN and infinity.
class FiniteCheck {
 public:
  explicit FiniteCheck(bool enabled) : enabled_(enabled) {}
  // Checks a gradient of this rank. Gradients on GPUs are deferred to findings(), so that the host synchronizes
  // once.
  void check(size_t param, const Tensor& grad);
  // Returns the findings of all ranks as text; empty if all gradients are finite. Collective.
  std::string findings(const Group& group, const AttachedParams& params);

 private:
  void check_elements(size_t param, const Tensor& grad);
  void check_gpu_gradients();

  const bool enabled_;
  int64_t param_ = -1, element_ = 0;  // first element that is not finite; param_ is -1 if there is none
  std::vector<std::pair<size_t, Tensor>> on_gpus_;
};

}  // namespace gradus::dist::internal
