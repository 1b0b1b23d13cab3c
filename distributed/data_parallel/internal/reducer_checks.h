// The checks that a callback's options ask for: of gradients, of parameters, of what a backward reaches.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradus/distributed/data_parallel/internal/attached_params.h"
#include "gradus/distributed/group/group.h"

namespace gradus::dist::internal {

class BackwardExchange;

// Checks that a parameter, or its gradient, can be averaged between ranks.
// Errors: DeviceError unless x is in host memory.
void check_can_average(std::string_view op, std::string_view what, const Tensor& x);

// check_finite: finds NaN and infinity in the gradients of one backward.
class FiniteCheck {
 public:
  explicit FiniteCheck(bool enabled) : enabled_(enabled) {}
  // Looks at a gradient of this rank. Those on GPUs wait for found(), so that the host waits once.
  void look(size_t param, const Tensor& grad);
  // Returns what all ranks have found, as text. Collective.
  std::string found(const Group& group, const AttachedParams& params);

 private:
  void look_for_elements(size_t param, const Tensor& grad);
  void look_on_gpus();

  const bool enabled_;
  int64_t param_ = -1, element_ = 0;  // the first that is not finite; -1: none
  std::vector<std::pair<size_t, Tensor>> on_gpus_;
};

// check_divergence_every: a tensor that is not the same on all ranks.
struct Divergence {
  int rank;  // has another value than most ranks (on a tie, than the first)
  std::string text;
};
// Returns the first such tensor. Collective.
// Errors: InternalError if all are the same, bit by bit.
Divergence find_divergence(const Group& group, const AttachedParams& params);

// static_graph: checks that this rank reaches the same as in the backward of `settled`.
// Errors: StateError naming the first tensor that is reached now alone, or no longer.
void check_static(BackwardExchange& settled, const Group& group, const std::vector<bool>& reached,
                  const AttachedParams& params);

}  // namespace gradus::dist::internal
