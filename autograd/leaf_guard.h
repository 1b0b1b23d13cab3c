// LeafGuard: who has a say before a recording follows tensors. A data-parallel model guards its parameters:
// recorded without its callback, their gradients would stay this rank's own.
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
  virtual ~LeafGuard();  // guards nothing from then on

  // Guards it, instead of whoever did; and forgets tensors that are gone.
  void guard(const std::vector<Ref<Leaf>>& leaves);
  // Throws unless a manager may record `x` with these callbacks.
  virtual void check_recording(const Tensor& x, const std::vector<Callback>& callbacks) const = 0;
};

// Asks the leaf's guard, if it has one.
void check_guard(const Leaf& leaf, const std::vector<Callback>& callbacks);

}  // namespace gradus::autograd
