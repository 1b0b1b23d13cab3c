// detect_anomaly: finds the first op whose result or gradient is not finite.
//
//   auto detecting = autograd::detect_anomaly();
//   gm.backward(loss(net(x)));
//   // ValueError: while running backward of sqrt (head): [backward] the gradient of input 0 is not finite: inf at
//   // element 3 of f32[8] cpu
//
// Every op that a recording records is checked, and every gradient that its rule computes, which waits for the
// device each time: use it to look for a NaN, not in a training.
#pragma once

#include <span>

#include "gradus/tensor/runtime/context.h"

namespace gradus::autograd {

struct DetectAnomalyOptions {
  bool infinity = true;  // false: only NaN, as in PyTorch, for models that add masks of -infinity
};

// Ends with its lifetime, on the thread that made it. The Context holds it, so threads that run with a snapshot
// check too. A profiler or another observer of the Context sees nothing meanwhile.
class [[nodiscard]] AnomalyScope {
 public:
  explicit AnomalyScope(DetectAnomalyOptions options);
  ~AnomalyScope();
  AnomalyScope(const AnomalyScope&) = delete;
  AnomalyScope& operator=(const AnomalyScope&) = delete;

 private:
  Ref<Observer> outer_;
};

// Errors of ops and of backward in the scope: ValueError naming the op, its module, and the first element that is
// not finite.
inline AnomalyScope detect_anomaly(DetectAnomalyOptions options = {}) { return AnomalyScope(options); }

// Check the results of an op, and the gradients that the rule of a node has computed, if this thread detects
// anomalies.
void check_results(const char* op, std::span<const Tensor> results);
void check_gradients(std::span<const Tensor> gradients);

}  // namespace gradus::autograd
