// The reducer's checks: device, finite gradients, equal parameters, and the set of reached parameters
// (AllReduceCallbackOptions::check_finite, check_divergence_every, static_graph).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/distributed/data_parallel/internal/attached_params.h"
#include "gradus/distributed/data_parallel/internal/compare.h"
#include "gradus/distributed/group/group.h"

namespace gradus::dist::internal {

struct Consensus;

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

// check_divergence_every: returns the first tensor that differs between ranks. Collective.
// Errors: InternalError if all tensors are equal bit by bit.
Difference find_divergence(const Group& group, const AttachedParams& params);

// static_graph: checks that this rank reaches the same tensors as in the backward of `settled`.
// Errors: StateError naming the first tensor that only one of the two backwards reaches.
void check_static(const Consensus& settled, const Group& group, const std::vector<bool>& reached,
                  const AttachedParams& params);

}  // namespace gradus::dist::internal
