// LeafGuard: may refuse that a recording follows certain leaves. A data-parallel model guards its parameters,
// because a GradManager without the model's callback would not reduce their gradients across ranks. Any
// thread may call; no guard is destroyed while another thread attaches or opens a recording of its leaves.
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

  // Guards the leaves, replacing their previous guards. Also removes leaves of this guard whose tensors were
  // freed.
  void guard(const std::vector<Ref<Leaf>>& leaves);
  // Throws unless `x` may be recorded with these callbacks of its manager. Called by attach and record.
  virtual void check_recording(const Tensor& x, const std::vector<Callback>& callbacks) const = 0;
};

// Calls check_recording of the leaf's guard, if the leaf has one.
void check_guard(const Leaf& leaf, const std::vector<Callback>& callbacks);

}  // namespace gradus::autograd
