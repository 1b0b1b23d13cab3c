// Raw element-wise ops: operands broadcast to a common shape; results keep the operands' common layout. No
// autograd; users call gradus/autograd/ops/elementwise.h and activations.h.
#pragma once

#include "gradus/tensor/base/number.h"
#include "gradus/tensor/kernel_slot.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

using UnarySlot = KernelSlot<void(const Tensor& out, const Tensor& x)>;
using UnarySlot1 = KernelSlot<void(const Tensor& out, const Tensor& x, double parameter)>;
using UnarySlot2 = KernelSlot<void(const Tensor& out, const Tensor& x, double, double)>;
using BinarySlot = KernelSlot<void(const Tensor& out, const Tensor& a, const Tensor& b)>;
using BinarySlot1 = KernelSlot<void(const Tensor& out, const Tensor& a, const Tensor& b, double parameter)>;
using BinarySlot2 = KernelSlot<void(const Tensor& out, const Tensor& a, const Tensor& b, double, double)>;
using TernarySlot = KernelSlot<void(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& c)>;
using TernarySlot1 =
    KernelSlot<void(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& c, double parameter)>;

extern BinarySlot add_kernel, sub_kernel, mul_kernel, div_kernel, pow_kernel, remainder_kernel,
    maximum_kernel, minimum_kernel;
extern BinarySlot1 lerp_kernel;
// The factor, and the same as an integer: a double does not hold all of them.
extern KernelSlot<void(const Tensor& out, const Tensor& a, const Tensor& b, double alpha,
                       int64_t integer_alpha)>
    add_scaled_kernel;
extern TernarySlot lerp_tensor_kernel, where_kernel;
extern TernarySlot1 addcmul_kernel, addcdiv_kernel;
extern BinarySlot eq_kernel, ne_kernel, lt_kernel, le_kernel, gt_kernel, ge_kernel, logical_and_kernel,
    logical_or_kernel;
extern UnarySlot logical_not_kernel, isnan_kernel, isfinite_kernel;
extern UnarySlot neg_kernel, abs_kernel, sign_kernel, square_kernel, exp_kernel, expm1_kernel, log_kernel,
    log1p_kernel, sqrt_kernel, rsqrt_kernel, reciprocal_kernel, sin_kernel, cos_kernel, erf_kernel,
    floor_kernel, ceil_kernel, round_kernel;
extern KernelSlot<void(const Tensor& out, const Tensor& x, double low, double high, int64_t integer_low,
                       int64_t integer_high)>
    clamp_kernel;
extern BinarySlot2 clamp_backward_kernel;
extern UnarySlot relu_kernel, sigmoid_kernel, tanh_kernel, silu_kernel, gelu_kernel, gelu_tanh_kernel,
    logsigmoid_kernel;
extern UnarySlot1 leaky_relu_kernel, elu_kernel;
extern UnarySlot2 softplus_kernel;
extern BinarySlot relu_backward_kernel, sigmoid_backward_kernel, tanh_backward_kernel, silu_backward_kernel,
    gelu_backward_kernel, gelu_tanh_backward_kernel;
extern BinarySlot1 leaky_relu_backward_kernel, elu_backward_kernel;

extern UnarySlot tan_kernel, asin_kernel, acos_kernel, atan_kernel, sinh_kernel, cosh_kernel, asinh_kernel,
    acosh_kernel, atanh_kernel, exp2_kernel, log2_kernel, log10_kernel, erfc_kernel, erfinv_kernel,
    lgamma_kernel, trunc_kernel, isinf_kernel, bitwise_not_kernel;
extern KernelSlot<void(const Tensor& out, const Tensor& x, int64_t n)> polygamma_kernel;
extern KernelSlot<void(const Tensor& out, const Tensor& x, double, double, double)> nan_to_num_kernel;
extern BinarySlot atan2_kernel, fmod_kernel, floor_divide_kernel, trunc_divide_kernel, hypot_kernel,
    copysign_kernel, xlogy_kernel, logaddexp_kernel, heaviside_kernel, bitwise_and_kernel, bitwise_or_kernel,
    bitwise_xor_kernel, bitwise_left_shift_kernel, bitwise_right_shift_kernel, prelu_kernel;
extern UnarySlot selu_kernel, mish_kernel, hardsigmoid_kernel, hardswish_kernel;
extern UnarySlot1 celu_kernel, hardshrink_kernel, softshrink_kernel;
extern UnarySlot2 threshold_kernel;

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
Tensor logical_not(const Tensor& x);
Tensor isnan(const Tensor& x);
Tensor isfinite(const Tensor& x);

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

// Functions of one tensor keep its dtype; those with fractional values give f32 for integers.
Tensor neg(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor sign(const Tensor& x);
Tensor square(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor expm1(const Tensor& x);
Tensor log(const Tensor& x);
Tensor log1p(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor reciprocal(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor erf(const Tensor& x);
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor round(const Tensor& x);  // halves to the even neighbor
Tensor clamp(const Tensor& x, Number low, Number high);

Tensor relu(const Tensor& x);
Tensor leaky_relu(const Tensor& x, double slope);
Tensor elu(const Tensor& x, double alpha);
Tensor softplus(const Tensor& x, double beta, double threshold = 20);
Tensor silu(const Tensor& x);
Tensor logsigmoid(const Tensor& x);
Tensor gelu(const Tensor& x);
Tensor gelu_tanh(const Tensor& x);

// Gradients, fused, with dy's dtype. `out`, where given, receives the result; it may share dy's buffer.
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
void sqrt_(const Tensor& x);
void square_(const Tensor& x);
void relu_(const Tensor& x);
void clamp_(const Tensor& x, Number low, Number high);

// clang-format off
Tensor tan(const Tensor& x);
Tensor asin(const Tensor& x);
Tensor acos(const Tensor& x);
Tensor atan(const Tensor& x);
Tensor sinh(const Tensor& x);
Tensor cosh(const Tensor& x);
Tensor asinh(const Tensor& x);
Tensor acosh(const Tensor& x);
Tensor atanh(const Tensor& x);
Tensor exp2(const Tensor& x);
Tensor log2(const Tensor& x);
Tensor log10(const Tensor& x);
Tensor erfc(const Tensor& x);
Tensor erfinv(const Tensor& x);
Tensor lgamma(const Tensor& x);
Tensor polygamma(int64_t n, const Tensor& x);
Tensor trunc(const Tensor& x);
Tensor isinf(const Tensor& x);
Tensor nan_to_num(const Tensor& x, double nan, double positive, double negative);
Tensor atan2(const Tensor& y, const Tensor& x);
Tensor fmod(const Tensor& a, const Tensor& b);
Tensor floor_divide(const Tensor& a, const Tensor& b);
Tensor trunc_divide(const Tensor& a, const Tensor& b);
Tensor hypot(const Tensor& a, const Tensor& b);
Tensor copysign(const Tensor& a, const Tensor& b);
Tensor xlogy(const Tensor& x, const Tensor& y);
Tensor logaddexp(const Tensor& a, const Tensor& b);
Tensor heaviside(const Tensor& x, const Tensor& at_zero);
Tensor bitwise_and(const Tensor& a, const Tensor& b);
Tensor bitwise_or(const Tensor& a, const Tensor& b);
Tensor bitwise_xor(const Tensor& a, const Tensor& b);
Tensor bitwise_not(const Tensor& x);
Tensor bitwise_left_shift(const Tensor& a, const Tensor& b);
Tensor bitwise_right_shift(const Tensor& a, const Tensor& b);
Tensor selu(const Tensor& x);
Tensor celu(const Tensor& x, double alpha);
Tensor mish(const Tensor& x);
Tensor hardsigmoid(const Tensor& x);
Tensor hardswish(const Tensor& x);
Tensor hardshrink(const Tensor& x, double lambda);
Tensor softshrink(const Tensor& x, double lambda);
Tensor threshold(const Tensor& x, double threshold, double value);
Tensor prelu(const Tensor& x, const Tensor& slope);  // broadcast
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, double value);
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, double value);
// clang-format on

}  // namespace gradus::raw
