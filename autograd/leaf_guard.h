// LeafGuard: an object that must agree before a recording follows certain tensors. A data-parallel
// model guards its parameters: recorded without the model's callback, their gradients would not be
// reduced across ranks.
#pragma once

#include <vector>

#include "gradus/autograd/grad_manager.h"
#include "gradus/autograd/graph/recording_state.h"

namespace gradus::autograd {

class LeafGuard {
 public:
  LeafGuard() = default;
  LeafGuard(const LeafGuard&) = delete;
  LeafGuard& operator=(const LeafGuard&) = delete;
  virtual ~LeafGuard();  // ends its guard over all its leaves

  // Guards the leaves, in place of their previous guard. Also forgets leaves of this guard whose
  // tensors are gone.
  void guard(const std::vector<Ref<Leaf>>& leaves);
  // Throws unless a manager may record `x` with these callbacks.
  virtual void check_recording(const Tensor& x, const std::vector<Callback>& callbacks) const = 0;
};

// Calls check_recording of the leaf's guard, if the leaf has one.
void check_guard(const Leaf& leaf, const std::vector<Callback>& callbacks);

}  // namespace gradus::autograd
