// Element-wise comparison, tests for NaN and infinities, logic, selection, and the bits of integers. Shapes
// broadcast, dtypes promote, and errors are as in autograd/ops/arithmetic.h.
#pragma once

#include <optional>

#include "gradus/tensor/base/number.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// --- comparison and logic; the result is bool ---

// Compare. A comparison with NaN is false, except for ne.
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

// Combine truth values; in other dtypes than bool, every value but 0 is true.
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);
Tensor logical_xor(const Tensor& a, const Tensor& b);
Tensor logical_not(const Tensor& x);

// Test for NaN, and for neither NaN nor infinite.
Tensor isnan(const Tensor& x);
Tensor isfinite(const Tensor& x);
// Test for infinities: any, positive, negative.
Tensor isinf(const Tensor& x);
Tensor isposinf(const Tensor& x);
Tensor isneginf(const Tensor& x);

struct Closeness {
  double rtol = 1e-5, atol = 1e-8;
  bool equal_nan = false;  // two NaN count as close
};
// Tests |a - b| <= atol + rtol |b|. Infinities are close when they are equal.
Tensor isclose(const Tensor& a, const Tensor& b, Closeness options = {});
// Return whether all elements are close (allclose), or whether shapes and all elements are equal (equal).
// Both wait for the device.
bool allclose(const Tensor& a, const Tensor& b, Closeness options = {});
bool equal(const Tensor& a, const Tensor& b);

// --- selection ---

// Selects a where the condition (bool) is true, else b.
// Grad: dy to the selected operand.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, Number b);
Tensor where(const Tensor& condition, Number a, const Tensor& b);
Tensor where(const Tensor& condition, Number a, Number b);

// Replaces NaN and infinities by numbers; by default by 0 and by the dtype's largest numbers.
// Grad: dy where x is finite.
struct NanToNumOptions {
  double nan = 0;
  std::optional<double> posinf = {}, neginf = {};
};
Tensor nan_to_num(const Tensor& x, NanToNumOptions options = {});

// --- bits of integers and bools ---
// Errors: DTypeError for floating-point operands.

Tensor bitwise_and(const Tensor& a, const Tensor& b);
Tensor bitwise_or(const Tensor& a, const Tensor& b);
Tensor bitwise_xor(const Tensor& a, const Tensor& b);
Tensor bitwise_not(const Tensor& x);
// Shift by b bits. A shift beyond the width gives 0; to the right it gives the sign.
Tensor bitwise_left_shift(const Tensor& a, const Tensor& b);
Tensor bitwise_right_shift(const Tensor& a, const Tensor& b);

}  // namespace gradus
