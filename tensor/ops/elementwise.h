// Raw element-wise ops: operands broadcast to a common shape; results keep the operands' common layout. No
// autograd; users call gradus/autograd/ops/elementwise.h and activations.h.
#pragma once

#include "gradus/tensor/base/number.h"
#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// The kernel of where(), the one that is no functor's alone; those of the others: pointwise.h.
extern KernelSlot<void(const Tensor& out, const Tensor& condition, const Tensor& a, const Tensor& b)>
    where_kernel;

// The dtype that arithmetic yields: promote()'s, but a 0-dimensional operand counts only when its kind (bool,
// integer, float) is the higher one.
DType result_dtype(const Tensor& a, const Tensor& b);
inline DType result_dtype(const Tensor& x) { return x.dtype(); }
// The dtype of x with a number: x's, unless the number's kind is the higher one (f32, i64).
DType result_dtype(const Tensor& x, Number number);
// A 0-dimensional tensor for `number` as an operand next to x.
Tensor operand(Number number, const Tensor& x);

// a + b and so on.
// Errors: ShapeError, DTypeError, DeviceError.
Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);  // integers give f32
Tensor pow(const Tensor& a, const Tensor& b);
Tensor remainder(const Tensor& a, const Tensor& b);  // with b's sign
Tensor maximum(const Tensor& a, const Tensor& b);
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor add(const Tensor& a, const Tensor& b, Number alpha);    // a + alpha b
Tensor lerp(const Tensor& a, const Tensor& b, double weight);  // a + weight (b - a)
Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight);
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

// Results are bool.
Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
Tensor logical_and(const Tensor& a, const Tensor& b);
Tensor logical_or(const Tensor& a, const Tensor& b);

// With a number in place of a tensor.
inline Tensor add(const Tensor& a, Number b) { return raw::add(a, operand(b, a)); }
inline Tensor sub(const Tensor& a, Number b) { return raw::sub(a, operand(b, a)); }
inline Tensor sub(Number a, const Tensor& b) { return raw::sub(operand(a, b), b); }
inline Tensor mul(const Tensor& a, Number b) { return raw::mul(a, operand(b, a)); }
inline Tensor div(const Tensor& a, Number b) { return raw::div(a, operand(b, a)); }
inline Tensor div(Number a, const Tensor& b) { return raw::div(operand(a, b), b); }
inline Tensor pow(const Tensor& a, Number b) { return raw::pow(a, operand(b, a)); }
inline Tensor pow(Number a, const Tensor& b) { return raw::pow(operand(a, b), b); }
inline Tensor remainder(const Tensor& a, Number b) { return raw::remainder(a, operand(b, a)); }
inline Tensor maximum(const Tensor& a, Number b) { return raw::maximum(a, operand(b, a)); }
inline Tensor minimum(const Tensor& a, Number b) { return raw::minimum(a, operand(b, a)); }
inline Tensor eq(const Tensor& a, Number b) { return raw::eq(a, operand(b, a)); }
inline Tensor ne(const Tensor& a, Number b) { return raw::ne(a, operand(b, a)); }
inline Tensor lt(const Tensor& a, Number b) { return raw::lt(a, operand(b, a)); }
inline Tensor le(const Tensor& a, Number b) { return raw::le(a, operand(b, a)); }
inline Tensor gt(const Tensor& a, Number b) { return raw::gt(a, operand(b, a)); }
inline Tensor ge(const Tensor& a, Number b) { return raw::ge(a, operand(b, a)); }

Tensor clamp(const Tensor& x, Number low, Number high);

Tensor relu_backward(const Tensor& dy, const Tensor& y, const Tensor& out = {});
Tensor leaky_relu_backward(const Tensor& dy, const Tensor& x, double slope, const Tensor& out = {});
Tensor elu_backward(const Tensor& dy, const Tensor& x, double alpha, const Tensor& out = {});
Tensor sigmoid_backward(const Tensor& dy, const Tensor& y, const Tensor& out = {});
Tensor tanh_backward(const Tensor& dy, const Tensor& y, const Tensor& out = {});
Tensor silu_backward(const Tensor& dy, const Tensor& x, const Tensor& out = {});
Tensor gelu_backward(const Tensor& dy, const Tensor& x, const Tensor& out = {});
Tensor gelu_tanh_backward(const Tensor& dy, const Tensor& x, const Tensor& out = {});
Tensor clamp_backward(const Tensor& dy, const Tensor& x, double low, double high, const Tensor& out = {});

// In place: dst keeps its shape, dtype and layout; the others broadcast to it. Bump dst's version.
// Errors: ShapeError when they do not; DTypeError when the result does not fit dst's kind.
void add_(const Tensor& dst, const Tensor& src);
void add_(const Tensor& dst, const Tensor& src, Number alpha);  // dst += alpha src
void sub_(const Tensor& dst, const Tensor& src);
void mul_(const Tensor& dst, const Tensor& src);
void div_(const Tensor& dst, const Tensor& src);
void maximum_(const Tensor& dst, const Tensor& src);
void lerp_(const Tensor& dst, const Tensor& src, double weight);  // dst += weight (src - dst)
void addcmul_(const Tensor& dst, const Tensor& a, const Tensor& b, double value);  // dst += value a b
void addcdiv_(const Tensor& dst, const Tensor& a, const Tensor& b, double value);  // dst += value a / b
inline void add_(const Tensor& dst, Number number) { raw::add_(dst, operand(number, dst)); }
inline void sub_(const Tensor& dst, Number number) { raw::sub_(dst, operand(number, dst)); }
inline void mul_(const Tensor& dst, Number number) { raw::mul_(dst, operand(number, dst)); }
inline void div_(const Tensor& dst, Number number) { raw::div_(dst, operand(number, dst)); }
void clamp_(const Tensor& x, Number low, Number high);

Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value);
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, double value);

}  // namespace gradus::raw
