// Rules of optimizers: the step of one element. The kernels of all devices run the same ones.
//
//   template <class T> struct DescentRule {
//     static constexpr raw::Uses kUses = {};
//     T lr;
//     GRADUS_HD void operator()(T& p, T d, T&, T&, T&) const { p -= lr * d; }
//   };
//
// Its numbers have the type in which it computes, so that its loop is vector code. They come from the options
// and from the number of the step, on the host or on the device:
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
using Uses = std::array<bool, 3>;

template <class T, class Rule>
GRADUS_HD void step_element(const Rule& rule, T sign, T decay, T& p, T grad, T& a, T& b, T& c) {
  const T d = sign * grad + decay * p;
  rule(p, d, a, b, c);
}

// What the rule of a parameter depends on beside the options. On a device it is StepItem::on_device.
struct StepNumbers {
  double step;     // the number of this step, counted from 1
  double more[2];  // StepItem::numbers
  bool operator==(const StepNumbers&) const = default;
};
// Returns those of a StepItem.
template <class Item> StepNumbers numbers_of(const Item& item) {
  return {double(item.step), {item.numbers[0], item.numbers[1]}};
}

// Returns the sum of the weights in a running mean that began with 0.
GRADUS_HD double correction(double beta, double step) { return 1 - m::pow(beta, step); }

// The two moments that most rules use.
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

// Returns the sign of x; a NaN stays NaN, so that it shows. One selection, because compilers do not
// vectorize nested ones.
template <class T> GRADUS_HD T sign_of(T x) {
  const T one = m::copysign(T(1), x);
  return m::abs(x) > T(0) ? one : x;
}

// Two numbers of each element, or their norms over a parameter.
template <class T> struct Two {
  T first, second;
};

// What a pass over a parameter's elements reads beside the parameter, and what it writes.
struct Pass {
  bool reads_grad, reads_states, writes_states, writes_param;
};

// Running averages: p += weight * (d - p).
template <class T> struct AverageRule {
  static constexpr Uses kUses = {};
  T weight;
  GRADUS_HD void operator()(T& p, T d, T&, T&, T&) const { p = weight == T(1) ? d : p + weight * (d - p); }
};
struct MakeAverage {
  double weight;
  template <class T> GRADUS_HD AverageRule<T> rule(const StepNumbers&) const { return {T(weight)}; }
};

}  // namespace gradus::raw
