// detect_anomaly: finds the first op whose result or gradient is not finite.
//
//   auto detecting = autograd::detect_anomaly();
//   gm.backward(loss(net(x)));
//   // ValueError: while running backward of sqrt (head): [backward] the gradient of input 0 is not finite:
//   // inf at element 3 of f32[8] cpu
//
// Checks the results of every recorded op and every gradient that a rule computes. Each check waits for the
// device: use detect_anomaly to find the source of a NaN, not in normal training. As
// torch.autograd.detect_anomaly.
#pragma once

#include <span>

#include "gradus/tensor/runtime/context.h"

namespace gradus::autograd {

struct DetectAnomalyOptions {
  bool infinity = true;  // false: only NaN, as in PyTorch, for models that add masks of -infinity
};

// Enables the checks for its lifetime; must be destroyed on the thread that made it, scopes in reverse order.
// The scope replaces the Context's observer: threads that run with a snapshot of the Context check too, and a
// profiler receives no events meanwhile.
class [[nodiscard]] AnomalyScope {
 public:
  explicit AnomalyScope(DetectAnomalyOptions options);
  ~AnomalyScope();
  AnomalyScope(const AnomalyScope&) = delete;
  AnomalyScope& operator=(const AnomalyScope&) = delete;

 private:
  Ref<Observer> outer_;
};

// Errors of ops and of backward in the scope: ValueError naming the op, its module, and the first element
// that is not finite, by its row-major position. Integer and meta tensors pass.
inline AnomalyScope detect_anomaly(DetectAnomalyOptions options = {}) { return AnomalyScope(options); }

// Check the results of an op, or the gradients that a node's rule has computed. Do nothing unless the
// thread's Context has an AnomalyScope.
void check_results(const char* op, std::span<const Tensor> results);
void check_gradients(std::span<const Tensor> gradients);

}  // namespace gradus::autograd
