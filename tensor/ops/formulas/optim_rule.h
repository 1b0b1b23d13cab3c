// Optimizer update rules: functors that update one element of a parameter, shared by the kernels of all devices.
//
//   template <class T> struct DescentRule {
//     static constexpr raw::UsedStates kUses = {};
//     T lr;
//     GRADUS_HD void operator()(T& p, T d, T&, T&, T&) const { p -= lr * d; }
//   };
//
// p is one element of the parameter, d the gradient with sign and weight decay applied, and the other three are
// the optimizer's states of this element, of which the rule uses those in kUses. p and the used states are updated
// in place. All values have the type T to compute in (f32 for 16-bit floats), so that loops vectorize. A
// factory has the optimizer's options and creates the rule of a step from the step number, on the host or on the
// device:
//
//   struct DescentRuleFactory {
//     double lr;
//     template <class T> GRADUS_HD DescentRule<T> rule(const raw::StepNumbers&) const { return {T(lr)}; }
//   };
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::raw {

// Which of the three states a rule reads and writes.
using UsedStates = std::array<bool, 3>;

// Applies `rule` to one element p with the states a, b, c and d = sign * grad + decay * p. sign is 1, or -1 to
// maximize; decay is the coefficient of L2 weight decay.
template <class T, class Rule>
GRADUS_HD void step_element(const Rule& rule, T sign, T decay, T& p, T grad, T& a, T& b, T& c) {
  const T d = sign * grad + decay * p;
  rule(p, d, a, b, c);
}

// The scalar inputs of a rule factory for one parameter. If a step is captured in a CUDA graph, these three doubles
// are in device memory (StepItem::on_device), where the kernel increments `step` before it creates the rule.
struct StepNumbers {
  double step;     // the number of this step, from 1
  double more[2];  // other scalar state of the parameter before this step (StepItem::numbers)
  bool operator==(const StepNumbers&) const = default;
};
// Returns the StepNumbers of a StepItem, the description of one parameter in a step (tensor/ops/optim_step.h).
template <class Item> StepNumbers numbers_of(const Item& item) {
  return {double(item.step), {item.numbers[0], item.numbers[1]}};
}

// Returns Adam's bias correction 1 - beta^step: the sum of the weights of an exponential moving average that
// started at 0.
GRADUS_HD double correction(double beta, double step) { return 1 - m::pow(beta, step); }

// The exponential moving averages m of d and v of d^2, as in Adam.
template <class T> struct Moments {
  T b1, c1, b2, c2;
  GRADUS_HD static Moments of(double beta1, double beta2) {
    return {T(beta1), T(1 - beta1), T(beta2), T(1 - beta2)};
  }
  GRADUS_HD void update(T d, T& m, T& v) const {
    m = b1 * m + c1 * d;
    v = b2 * v + c2 * d * d;
  }
};

// Returns the sign of x, 0 for 0 and NaN for NaN. One conditional expression, because compilers do not vectorize
// nested conditional expressions.
template <class T> GRADUS_HD T sign_of(T x) {
  const T one = m::copysign(T(1), x);
  return m::abs(x) > T(0) ? one : x;
}

// LARS and LAMB (optim/rules/lars.h) scale the step of a parameter by a ratio of two 2-norms over its
// elements. Their rules take two passes over the parameter, described by kMeasurePass and kStepPass:
// measure() returns a Pair, the elements of the two vectors whose norms are computed, and step() updates the
// element with the scale that rate(norm of first, norm of second) returns. A Pair<double> also holds the sums
// of the squares.
template <class T> struct Pair {
  T first, second;
};

// What measure() or step() of such a rule accesses: the arrays that it reads, besides the parameter, and writes.
struct Pass {
  bool reads_grad, reads_states, writes_states, writes_param;
};

// The rule of moving averages: p += weight * (d - p), where p is the average and d, passed in place of the
// gradient, is the new value. For weight 1, p becomes exactly d.
template <class T> struct AverageRule {
  static constexpr UsedStates kUses = {};
  T weight;
  GRADUS_HD void operator()(T& p, T d, T&, T&, T&) const { p = weight == T(1) ? d : p + weight * (d - p); }
};
struct AverageRuleFactory {
  double weight;
  template <class T> GRADUS_HD AverageRule<T> rule(const StepNumbers&) const { return {T(weight)}; }
};

}  // namespace gradus::raw
