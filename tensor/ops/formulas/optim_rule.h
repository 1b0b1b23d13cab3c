// Optimizer update rules: functors that update one element of a parameter, shared by the kernels of all devices.
//
//   template <class T> struct DescentRule {
//     static constexpr raw::UsedStates kUses = {};
//     T lr;
//     GRADUS_HD void operator()(T& p, T d, T&, T&, T&) const { p -= lr * d; }
//   };
//
// p is the parameter, d the gradient with sign and weight decay applied, and the other three are states. Members
// have the type T to compute in, so that loops vectorize. A Make struct creates the rule from the options and the
// step number, on the host or on the device:
//
//   struct MakeDescent {
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

// Applies `rule` to one element with d = sign * grad + decay * p. sign is -1 to maximize.
template <class T, class Rule>
GRADUS_HD void step_element(const Rule& rule, T sign, T decay, T& p, T grad, T& a, T& b, T& c) {
  const T d = sign * grad + decay * p;
  rule(p, d, a, b, c);
}

// The per-parameter inputs of a Make struct. On a device they are StepItem::on_device.
struct StepNumbers {
  double step;     // the number of this step, from 1
  double more[2];  // StepItem::numbers
  bool operator==(const StepNumbers&) const = default;
};
// Returns the StepNumbers of a StepItem.
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

// Returns the sign of x, 0 for 0 and NaN for NaN. A single selection, because compilers do not vectorize nested
// ones.
template <class T> GRADUS_HD T sign_of(T x) {
  const T one = m::copysign(T(1), x);
  return m::abs(x) > T(0) ? one : x;
}

// Two values per element, or the two norms of these values over a parameter (LARS, LAMB).
template <class T> struct Pair {
  T first, second;
};

// The arrays that a pass over a parameter's elements reads, beside the parameter, and writes.
struct Pass {
  bool reads_grad, reads_states, writes_states, writes_param;
};

// The rule of moving averages: p += weight * (d - p).
template <class T> struct AverageRule {
  static constexpr UsedStates kUses = {};
  T weight;
  GRADUS_HD void operator()(T& p, T d, T&, T&, T&) const { p = weight == T(1) ? d : p + weight * (d - p); }
};
struct MakeAverage {
  double weight;
  template <class T> GRADUS_HD AverageRule<T> rule(const StepNumbers&) const { return {T(weight)}; }
};

}  // namespace gradus::raw
