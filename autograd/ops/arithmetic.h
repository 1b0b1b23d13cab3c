// Element-wise arithmetic: sums, products, quotients, powers, roots, maxima, clamping, signs, rounding.
//
// Operands of different shapes broadcast by NumPy's rule. Dtypes promote as in PyTorch: a number takes the
// tensor's dtype unless its C++ type is of a higher category, in the order bool, integer, floating point
// (docs/api/dtypes.md). The result has the operands' memory layout.
// Errors of all ops: StateError for an undefined operand; ShapeError when shapes do not broadcast;
// DTypeError for a dtype that the op does not take (sub of bools); DeviceError for operands on different
// devices. Integers wrap on overflow. Functions are differentiable unless noted; an element-wise "Grad" is
// summed to a broadcast operand's shape. dy is the gradient of the result y.
#pragma once

#include <optional>
#include <utility>

#include "gradus/tensor/base/number.h"
#include "gradus/tensor/tensor.h"

namespace gradus {

// Adds: y = a + b.
// Grad: da = dy, db = dy.
Tensor add(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& a, Number b);
Tensor add(Number a, const Tensor& b);
// Subtracts: y = a - b.
// Grad: da = dy, db = -dy.
Tensor sub(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, Number b);
Tensor sub(Number a, const Tensor& b);
// Multiplies: y = a b.
// Grad: da = dy b, db = dy a.
Tensor mul(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, Number b);
Tensor mul(Number a, const Tensor& b);
// Divides: y = a / b. Integers give the default dtype.
// Grad: da = dy / b, db = -dy y / b.
Tensor div(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, Number b);
Tensor div(Number a, const Tensor& b);
// Raises to a power: y = a^b. Integers to a negative power are rounded toward 0.
// Grad: da = dy b a^(b-1), and 0 where b = 0; db = dy y log a, and 0 where a = 0 and b >= 0. At a = 0, da is
// 0 for b = 0 and b > 1, dy for b = 1, and infinite for other b.
Tensor pow(const Tensor& a, const Tensor& b);
Tensor pow(const Tensor& a, Number b);
Tensor pow(Number a, const Tensor& b);
// Remainder with the divisor's sign, as Python's %: y = a - b floor(a / b). Integers: 0 for a divisor of 0.
// Grad: da = dy, db = -dy floor(a / b).
Tensor remainder(const Tensor& a, const Tensor& b);
Tensor remainder(const Tensor& a, Number b);
// Remainder with the dividend's sign, as std::fmod: y = a - b trunc(a / b). Integers: 0 for a divisor of 0.
// Grad: da = dy, db = -dy trunc(a / b).
Tensor fmod(const Tensor& a, const Tensor& b);
Tensor fmod(const Tensor& a, Number b);
// y = floor(a / b). Integers: 0 for a divisor of 0.
// Grad: 0.
Tensor floor_divide(const Tensor& a, const Tensor& b);
Tensor floor_divide(const Tensor& a, Number b);
// Divides, and rounds the quotient toward 0 (kTrunc) or down (kFloor); kNone does not round. With rounding,
// integers give integers, and 0 for a divisor of 0.
// Grad: as div for kNone, else 0.
enum class RoundingMode { kNone, kTrunc, kFloor };
Tensor div(const Tensor& a, const Tensor& b, RoundingMode rounding_mode);
Tensor div(const Tensor& a, Number b, RoundingMode rounding_mode);
// y = max(a, b); NaN if either operand is NaN.
// Grad: dy to the larger operand, dy / 2 to each where they are equal.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, Number b);
// y = min(a, b); NaN if either operand is NaN.
// Grad: dy to the smaller operand, dy / 2 to each where they are equal.
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, Number b);

// The same for temporary operands. The result reuses the buffer of a temporary that is its only owner.
Tensor add(Tensor&& a, const Tensor& b);
Tensor add(Tensor&& a, Number b);
Tensor sub(Tensor&& a, const Tensor& b);
Tensor sub(Tensor&& a, Number b);
Tensor mul(Tensor&& a, Number b);

inline Tensor operator+(Tensor&& a, const Tensor& b) { return add(std::move(a), b); }
inline Tensor operator+(const Tensor& a, Tensor&& b) { return add(std::move(b), a); }
inline Tensor operator+(Tensor&& a, Tensor&& b) { return add(std::move(a), b); }
inline Tensor operator+(Tensor&& a, Number b) { return add(std::move(a), b); }
inline Tensor operator+(Number a, Tensor&& b) { return add(std::move(b), a); }
inline Tensor operator-(Tensor&& a, const Tensor& b) { return sub(std::move(a), b); }
inline Tensor operator-(Tensor&& a, Number b) { return sub(std::move(a), b); }
inline Tensor operator*(Tensor&& a, Number b) { return mul(std::move(a), b); }
inline Tensor operator*(Number a, Tensor&& b) { return mul(std::move(b), a); }
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator+(const Tensor& a, Number b) { return add(a, b); }
inline Tensor operator+(Number a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator-(const Tensor& a, Number b) { return sub(a, b); }
inline Tensor operator-(Number a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator*(const Tensor& a, Number b) { return mul(a, b); }
inline Tensor operator*(Number a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator/(const Tensor& a, Number b) { return div(a, b); }
inline Tensor operator/(Number a, const Tensor& b) { return div(a, b); }

// Compute a + alpha b, and a - alpha b.
// Errors: DTypeError for integers and a floating-point alpha; ValueError for an alpha out of an integer's
// range.
// Grad: to a, dy; to b, alpha dy for add and -alpha dy for sub.
Tensor add(const Tensor& a, const Tensor& b, Number alpha);
Tensor add(const Tensor& a, Number b, Number alpha);
Tensor sub(const Tensor& a, const Tensor& b, Number alpha);
Tensor sub(const Tensor& a, Number b, Number alpha);
// Compute x + value a b, and x + value a / b.
// Errors: DTypeError for integers.
// Grad: dx = dy; da and db as mul's and div's, times value.
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value = 1);
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, double value = 1);
// Linear interpolation: y = a + weight (b - a).
// Grad: da = dy (1 - weight), db = dy weight, dweight = dy (b - a).
Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight);
Tensor lerp(const Tensor& a, const Tensor& b, double weight);

// y = min(max(x, low), high). clamp(x, {}, high) has no lower bound. NaN elements stay NaN.
// Errors: ValueError for a NaN bound, and for integers where no value of x's dtype lies between the bounds.
// Grad: dy where low < x < high, else 0: also 0 at the bounds and for NaN. An infinite bound does not
// restrict x.
Tensor clamp(const Tensor& x, std::optional<Number> low = {}, std::optional<Number> high = {});
// The same with tensors as bounds. An undefined bound does not restrict x. The result is `high` where low >
// high.
// Errors: ValueError when both bounds are undefined.
// Grad: dy to x inside of the bounds, dy to the bound outside of them; dy / 2 to each where x equals a bound.
Tensor clamp(const Tensor& x, const Tensor& low, const Tensor& high);
// Returns dy where low < x < high, else 0. An infinite bound does not restrict x. May write into dy's buffer.
// Grad: to dy, clamp_backward of the gradient.
Tensor clamp_backward(Tensor dy, const Tensor& x, double low, double high);

// --- unary; functions with fractional results return the default dtype for integers ---

// Negates: y = -x.
// Grad: -dy.
Tensor neg(const Tensor& x);
inline Tensor operator-(const Tensor& x) { return neg(x); }
// y = |x|.
// Grad: dy sign(x).
Tensor abs(const Tensor& x);
// Sign: -1, 0 or 1; 0 for NaN.
// Grad: 0.
Tensor sign(const Tensor& x);
// Squares: y = x^2.
// Grad: 2 dy x.
Tensor square(const Tensor& x);
// Square root.
// Grad: dy / (2 y).
Tensor sqrt(const Tensor& x);
// Reciprocal of the square root: y = x^-1/2.
// Grad: -dy y^3 / 2.
Tensor rsqrt(const Tensor& x);
// Reciprocal: y = 1 / x.
// Grad: -dy y^2.
Tensor reciprocal(const Tensor& x);
// y = sqrt(a^2 + b^2), without overflow of the squares.
// Grad: da = dy a / y, db = dy b / y.
Tensor hypot(const Tensor& a, const Tensor& b);
// Returns |a| with the sign of b.
// Grad: to a, dy sign(a) sign(b), 0 where a is 0; to b, 0.
Tensor copysign(const Tensor& a, const Tensor& b);
// Heaviside step function: 0 where x < 0, 1 where x > 0, `at_zero` where x = 0; NaN stays NaN.
// Grad: to x, 0; to at_zero, dy where x = 0, else 0.
Tensor heaviside(const Tensor& x, const Tensor& at_zero);
// Round down, up, or to the nearest integer (ties to even). The result has x's dtype.
// Grad: 0.
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor round(const Tensor& x);
// trunc rounds toward 0. round with `decimals` rounds to that many decimal places; negative: to tens,
// hundreds, ...
// Grad: 0.
Tensor trunc(const Tensor& x);
Tensor round(const Tensor& x, int64_t decimals);
// Fractional part: y = x - trunc(x).
// Grad: dy.
Tensor frac(const Tensor& x);

// --- in place ---
// x keeps its shape, dtype and layout; the operand broadcasts to x's shape. Not differentiable: the operand
// gets no gradient, even when a recording follows the operand.
// Errors of all: StateError when an open recording follows x; DTypeError when the operand, or the result, is
// of a higher category than x (bool, integer, floating point); ShapeError when elements of x share memory.

// x += y, x += alpha y; likewise -=, *=, /=.
void add_(const Tensor& x, const Tensor& y);
void add_(const Tensor& x, const Tensor& y, Number alpha);
void add_(const Tensor& x, Number y);
void sub_(const Tensor& x, const Tensor& y);
void sub_(const Tensor& x, Number y);
void mul_(const Tensor& x, const Tensor& y);
void mul_(const Tensor& x, Number y);
void div_(const Tensor& x, const Tensor& y);
void div_(const Tensor& x, Number y);
// x += weight (y - x).
void lerp_(const Tensor& x, const Tensor& y, double weight);
// x = min(max(x, low), high).
// Errors: as clamp's; DTypeError for a floating-point bound of integers.
void clamp_(const Tensor& x, std::optional<Number> low, std::optional<Number> high);

// Writes x += y in place, as add_; views of x change too. When an open recording follows x or y, computes a
// new tensor of x's shape and dtype instead, with gradients to both, and assigns it to x. Other handles keep
// the old tensor.
// Errors: those of add_; StateError for an attached tensor when an open recording follows x or y.
Tensor& operator+=(Tensor& x, const Tensor& y);
Tensor& operator-=(Tensor& x, const Tensor& y);
Tensor& operator*=(Tensor& x, const Tensor& y);
Tensor& operator/=(Tensor& x, const Tensor& y);
Tensor& operator+=(Tensor& x, Number y);
Tensor& operator-=(Tensor& x, Number y);
Tensor& operator*=(Tensor& x, Number y);
Tensor& operator/=(Tensor& x, Number y);

}  // namespace gradus
