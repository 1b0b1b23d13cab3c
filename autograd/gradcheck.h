// gradcheck: compares a function's gradients with central differences, in f64. As torch.autograd.gradcheck.
//
//   auto f = [](const std::vector<Tensor>& x) { return my_op(x[0], x[1]); };
//   auto check = autograd::gradcheck(f, {a, b});       // first order
//   auto again = autograd::gradgradcheck(f, {a, b});   // the gradient's gradient
//   if (!check) std::cerr << check.message << "\n";    // "gradient of input 1 at [0,2] is 0.73, ..."
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gradus/tensor/tensor.h"

namespace gradus::autograd {

using TensorFunction = std::function<Tensor(const std::vector<Tensor>&)>;

struct GradCheckOptions {
  // Step h of the difference formula: relative to max(1, |x|) for single elements, absolute for random
  // directions. The formula evaluates f at x +- 2h (directions: up to +- 3h per element), so inputs should be
  // farther than that from points without a derivative (0 of relu, ties of max).
  double step = 1e-4;
  // A gradient g agrees with a difference d when |g - d| <= atol + rtol * |d|; for random directions in n
  // elements, sqrt(n) times that.
  double atol = 1e-7;
  double rtol = 1e-6;
  // Inputs of up to this many elements are checked element by element, larger ones along `directions` random
  // directions.
  int64_t max_elements = 256;
  int directions = 3;
  // Outputs of up to this many elements are checked one by one (the full Jacobian), larger ones by two random
  // projections dy.
  int64_t max_outputs = 8;
  uint64_t seed = 0;
};

struct GradCheckResult {
  bool ok = true;
  std::string message;  // the last failure, or a summary of the comparisons
  // The largest |g - d| / tolerance of all comparisons. The check fails above 1.
  double max_error_ratio = 0;
  int input = -1;         // the input of that comparison; -1: no error is above 0
  int64_t element = -1;   // row-major; -1: a random direction
  double analytical = 0;  // the gradient from autograd
  double numerical = 0;   // the gradient from the differences

  explicit operator bool() const { return ok; }
};

// Checks the first-order gradients of y = f(inputs) with respect to every f64 input, along a direction u:
//   <dy, (8 (f(x + hu) - f(x - hu)) - (f(x + 2hu) - f(x - 2hu))) / 12h>   against   <grad(f, x, dy), u>.
// Also checks that each gradient has its input's shape, dtype and device, that the gradient of one input
// alone equals its gradient among all inputs, that repeated runs of f and of the backward give equal values
// (NaN equals nothing), and that no input has a `grad()` afterward. Integer and bool inputs (indices, masks)
// are passed to f and not differentiated. A failed check is reported in the result; errors of f propagate.
// Errors: DTypeError when no input is f64, an input is f32, f16 or bf16, or f's result is not f64.
GradCheckResult gradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs,
                          const GradCheckOptions& = {});

// Checks the second-order gradients: calls gradcheck on (inputs, dy) -> grad(f, inputs, dy), input by input,
// with a random dy.
// Errors: as gradcheck; also what an op throws when its gradient cannot be differentiated.
GradCheckResult gradgradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs,
                              const GradCheckOptions& = {});

}  // namespace gradus::autograd
