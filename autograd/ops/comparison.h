// Element-wise comparison, tests for NaN and infinities, logic, selection, and bit operations on integers.
// Broadcasting, promotion of dtypes and errors are as in autograd/ops/arithmetic.h.
#pragma once

#include <optional>

#include "gradus/tensor/base/number.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// --- comparison and logic; the result is bool ---

// Compare a with b. A comparison with NaN is false, except for ne, which is true.
Tensor eq(const Tensor& a, const Tensor& b);
Tensor eq(const Tensor& a, Number b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, Number b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, Number b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, Number b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, Number b);
Tensor ge(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, Number b);

// Logical operators. In dtypes other than bool, 0 is false and every other value is true.
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& x);

// isnan tests for NaN; isfinite is true for elements that are neither NaN nor infinite.
Tensor isnan(const Tensor& x);
Tensor isfinite(const Tensor& x);
// Test for +-infinity, +infinity, -infinity.
Tensor isinf(const Tensor& x);
Tensor isposinf(const Tensor& x);
Tensor isneginf(const Tensor& x);

struct IscloseOptions {
  double rtol = 1e-5, atol = 1e-8;
  bool equal_nan = false;  // two NaN count as close
};
// Tests |a - b| <= atol + rtol |b|. Infinities are close only to equal infinities.
// Errors: also ValueError for a negative or NaN rtol or atol.
Tensor isclose(const Tensor& a, const Tensor& b, IscloseOptions options = {});
// allclose: whether all elements are close. equal: whether the shapes and all elements (not the dtypes) are
// equal. Both wait for the device.
bool allclose(const Tensor& a, const Tensor& b, IscloseOptions options = {});
bool equal(const Tensor& a, const Tensor& b);

// --- selection ---

// Selects a where the condition (bool) is true, else b. Two numbers give their C++ types' promoted dtype.
// Errors: also ValueError for a number outside the range of the result's integer dtype.
// Grad: dy to the selected operand.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, Number b);
Tensor where(const Tensor& condition, Number a, const Tensor& b);
Tensor where(const Tensor& condition, Number a, Number b);

// Replaces NaN by `nan`, +infinity by `posinf` and -infinity by `neginf`. `posinf` and `neginf` default to
// the largest and lowest finite value of the dtype. Integers are copied.
// Grad: dy where x is finite, else 0.
struct NanToNumOptions {
  double nan = 0;
  std::optional<double> posinf = {}, neginf = {};
};
Tensor nan_to_num(const Tensor& x, NanToNumOptions options = {});

// --- bit operations on integers and bools ---
// Errors: DTypeError for floating-point operands.

Tensor bitwise_and(const Tensor& a, const Tensor& b);
Tensor bitwise_or(const Tensor& a, const Tensor& b);
Tensor bitwise_xor(const Tensor& a, const Tensor& b);
Tensor bitwise_not(const Tensor& x);
// Shift by b bits; the right shift is arithmetic. If b is negative or at least the dtype's width, the result
// is 0, or -1 for a right shift of a negative number.
Tensor bitwise_left_shift(const Tensor& a, const Tensor& b);
Tensor bitwise_right_shift(const Tensor& a, const Tensor& b);

}  // namespace gradus
