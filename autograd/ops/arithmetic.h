// Element-wise arithmetic: sums, products, quotients, powers, roots, extrema, limits, signs, rounding.
//
// Operands of different shapes broadcast (NumPy's rule). Dtypes promote as in PyTorch. A number takes
// the tensor's dtype unless its C++ type is of a higher kind (docs/dtypes.md). The result has the
// operands' memory layout.
// Errors of all: ShapeError when shapes do not broadcast; DTypeError; DeviceError for operands
// on different devices.
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
// Divides: y = a / b. Integers give f32.
// Grad: da = dy / b, db = -dy y / b.
Tensor div(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, Number b);
Tensor div(Number a, const Tensor& b);
// Raises to a power: y = a^b.
// Grad: da = dy b a^(b-1), db = dy y log a (0 where a and y are 0).
Tensor pow(const Tensor& a, const Tensor& b);
Tensor pow(const Tensor& a, Number b);
Tensor pow(Number a, const Tensor& b);
// Takes the remainder with the divisor's sign: y = a - b floor(a / b). Integers: 0 for a divisor of 0.
// Grad: da = dy, db = -dy floor(a / b).
Tensor remainder(const Tensor& a, const Tensor& b);
Tensor remainder(const Tensor& a, Number b);
// Takes the remainder with the dividend's sign: y = a - b trunc(a / b). Integers: 0 for a divisor of 0.
// Grad: dy, -dy trunc(a / b).
Tensor fmod(const Tensor& a, const Tensor& b);
Tensor fmod(const Tensor& a, Number b);
// Divides and rounds down. Integers: 0 for a divisor of 0.
// Grad: 0.
Tensor floor_divide(const Tensor& a, const Tensor& b);
Tensor floor_divide(const Tensor& a, Number b);
// Divides, then rounds toward 0 or down. kNone: as div. When the result is rounded, integers stay integers,
// and a divisor of 0 gives 0.
// Grad: 0 where rounded.
enum class RoundingMode { kNone, kTrunc, kFloor };
Tensor div(const Tensor& a, const Tensor& b, RoundingMode rounding_mode);
Tensor div(const Tensor& a, Number b, RoundingMode rounding_mode);
// Takes the larger operand; NaN if either is NaN.
// Grad: dy to the larger, half each where equal.
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, Number b);
// Takes the smaller operand; NaN if either is NaN.
// Grad: dy to the smaller, half each where equal.
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, Number b);

// The same for temporary operands. A temporary passes its buffer to the result when it is the only owner.
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
// Errors: DTypeError for integers and a floating-point alpha.
// Grad: to a, dy; to b, alpha dy for add and -alpha dy for sub.
Tensor add(const Tensor& a, const Tensor& b, Number alpha);
Tensor add(const Tensor& a, Number b, Number alpha);
Tensor sub(const Tensor& a, const Tensor& b, Number alpha);
Tensor sub(const Tensor& a, Number b, Number alpha);
// Compute x + value a b, and x + value a / b.
// Errors: DTypeError for integers.
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value = 1);
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, double value = 1);
// Interpolates: y = a + weight (b - a).
// Grad: da = dy (1 - weight), db = dy weight, dweight = dy (b - a).
Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight);
Tensor lerp(const Tensor& a, const Tensor& b, double weight);

// Limits: y = min(max(x, low), high). clamp(x, {}, high) limits from above only. NaN stays.
// Errors: ValueError for a NaN bound, and for integers where no value of x's dtype lies between the bounds.
// Grad: dy where low < x < high, else 0, also at the bounds and for NaN. An infinite bound does not limit.
Tensor clamp(const Tensor& x, std::optional<Number> low = {}, std::optional<Number> high = {});
// Limits x to the range between two tensors. An undefined bound does not limit. Where low > high, the
// result is high.
// Errors: ValueError when both are undefined.
// Grad: dy to x within the bounds, else to the bound that x was set to; at a bound half to each.
Tensor clamp(const Tensor& x, const Tensor& low, const Tensor& high);
// Returns dy where low < x < high, else 0. An infinite bound does not limit. May write into dy's buffer.
// Grad: d(dy) = the same of dy's gradient.
Tensor clamp_backward(Tensor dy, const Tensor& x, double low, double high);

// --- of one number; those with fractional values give f32 for integers ---

// Negates: y = -x.
// Grad: -dy.
Tensor neg(const Tensor& x);
inline Tensor operator-(const Tensor& x) { return neg(x); }
// Takes the absolute value.
// Grad: dy sign(x).
Tensor abs(const Tensor& x);
// Takes the sign: -1, 0 or 1; 0 for NaN.
// Grad: 0.
Tensor sign(const Tensor& x);
// Squares: y = x^2.
// Grad: 2 dy x.
Tensor square(const Tensor& x);
// Takes the square root.
// Grad: dy / (2 y).
Tensor sqrt(const Tensor& x);
// Takes the reciprocal of the square root.
// Grad: -dy y^3 / 2.
Tensor rsqrt(const Tensor& x);
// Takes the reciprocal: y = 1 / x.
// Grad: -dy y^2.
Tensor reciprocal(const Tensor& x);
// Takes sqrt(a^2 + b^2) without overflow.
// Grad: dy a / y, dy b / y.
Tensor hypot(const Tensor& a, const Tensor& b);
// Takes |a| with the sign of b.
// Grad: to a, dy sign(a) sign(b), 0 where a is 0; to b, 0.
Tensor copysign(const Tensor& a, const Tensor& b);
// Takes 0 where x < 0, 1 where x > 0, and `at_zero` where x is 0.
// Grad: to x, none; to at_zero, dy where x is 0.
Tensor heaviside(const Tensor& x, const Tensor& at_zero);
// Round down, up, and to the nearest integer (halves to the even one). The dtype stays.
// Grad: 0.
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor round(const Tensor& x);
// Round toward 0, and to a number of decimals (to tens, hundreds, ... when it is negative).
// Grad: 0.
Tensor trunc(const Tensor& x);
Tensor round(const Tensor& x, int64_t decimals);
// Takes x - trunc(x).
// Grad: dy.
Tensor frac(const Tensor& x);

// --- in place ---
// x keeps its shape, dtype and layout. The operand broadcasts to it. Not differentiable.
// Errors of all: StateError when an open recording follows x; DTypeError when the operand, or its result with
// x, is of a higher kind than x.

// x += y, x += alpha y.
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

// Writes x += y in place, as add_ does; views of x see it. When an open recording follows x or y, x names a
// new value instead, of the same shape and dtype, with gradients to both. Other handles keep the old value.
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
