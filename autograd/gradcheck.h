// gradcheck: compares a function's gradients with central differences, in f64. Checks functions of your own:
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
  // Distance between the points of the difference formula, times max(1, |x|). The formula reaches two steps
  // to either side. Inputs should be farther than that from a kink (0 of relu, ties of max).
  double step = 1e-4;
  // A gradient g passes against a difference d when |g - d| <= atol + rtol * |d|.
  double atol = 1e-7;
  double rtol = 1e-6;
  // Inputs up to this size are checked element by element, larger ones along `directions` random directions.
  int64_t max_elements = 256;
  int directions = 3;
  // Outputs up to this size are checked one by one (the full Jacobian), larger ones under
  // two random projections.
  int64_t max_outputs = 8;
  uint64_t seed = 0;
};

struct GradCheckResult {
  bool ok = true;
  std::string message;  // what was wrong, or what was compared
  // The largest error among the comparisons, relative to its tolerance. Above 1 the check failed.
  double worst = 0;
  int input = -1;
  int64_t element = -1;  // row-major; -1: a random direction
  double given = 0;      // the gradient from autograd
  double expected = 0;   // the gradient from the differences

  explicit operator bool() const { return ok; }
};

// Checks the first-order gradients of y = f(inputs) with respect to every f64 input:
//   <dy, (8 (f(x+h) - f(x-h)) - (f(x+2h) - f(x-2h))) / 12h>   against   <grad(f, x, dy), direction of h>.
// Checks also that each gradient has its input's shape, dtype and device; that the gradient of one input
// alone equals that of all together; that repeated runs agree bit for bit; and that no input is left with a
// `grad()`. Integer and bool inputs (indices, masks) are passed on and not differentiated.
// Errors: DTypeError when no input is f64, an input is f32, f16 or bf16, or f's result is not f64.
GradCheckResult gradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs,
                          const GradCheckOptions& = {});

// Checks the second-order gradients: calls gradcheck on (inputs, dy) -> grad(f, inputs, dy), input by input,
// with a random dy.
// Errors: as gradcheck; also what an op throws when its gradient cannot be differentiated.
GradCheckResult gradgradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs,
                              const GradCheckOptions& = {});

}  // namespace gradus::autograd
