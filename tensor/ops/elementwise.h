// Raw element-wise ops: operands broadcast to a common shape; results keep the operands' common layout. No
// autograd; users call gradus/autograd/ops/elementwise.h and activations.h.
#pragma once

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/number.h"
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

inline constinit BinarySlot add_kernel{"add"}, sub_kernel{"sub"}, mul_kernel{"mul"}, div_kernel{"div"},
    pow_kernel{"pow"}, remainder_kernel{"remainder"}, maximum_kernel{"maximum"}, minimum_kernel{"minimum"};
inline constinit BinarySlot1 lerp_kernel{"lerp"};
// The factor, and the same as an integer: a double does not hold all of them.
inline constinit KernelSlot<void(const Tensor& out, const Tensor& a, const Tensor& b, double alpha, int64_t integer_alpha)>
    add_scaled_kernel{"add"};
inline constinit TernarySlot lerp_tensor_kernel{"lerp"}, where_kernel{"where"};
inline constinit TernarySlot1 addcmul_kernel{"addcmul"}, addcdiv_kernel{"addcdiv"};
inline constinit BinarySlot eq_kernel{"eq"}, ne_kernel{"ne"}, lt_kernel{"lt"}, le_kernel{"le"},
    gt_kernel{"gt"}, ge_kernel{"ge"}, logical_and_kernel{"logical_and"}, logical_or_kernel{"logical_or"};
inline constinit UnarySlot logical_not_kernel{"logical_not"}, isnan_kernel{"isnan"},
    isfinite_kernel{"isfinite"};
inline constinit UnarySlot neg_kernel{"neg"}, abs_kernel{"abs"}, sign_kernel{"sign"}, square_kernel{"square"},
    exp_kernel{"exp"}, expm1_kernel{"expm1"}, log_kernel{"log"}, log1p_kernel{"log1p"}, sqrt_kernel{"sqrt"},
    rsqrt_kernel{"rsqrt"}, reciprocal_kernel{"reciprocal"}, sin_kernel{"sin"}, cos_kernel{"cos"},
    erf_kernel{"erf"}, floor_kernel{"floor"}, ceil_kernel{"ceil"}, round_kernel{"round"};
inline constinit KernelSlot<void(const Tensor& out, const Tensor& x, double low, double high, int64_t integer_low,
                                int64_t integer_high)>
    clamp_kernel{"clamp"};
inline constinit BinarySlot2 clamp_backward_kernel{"clamp_backward"};
inline constinit UnarySlot relu_kernel{"relu"}, sigmoid_kernel{"sigmoid"}, tanh_kernel{"tanh"},
    silu_kernel{"silu"}, gelu_kernel{"gelu"}, gelu_tanh_kernel{"gelu_tanh"}, logsigmoid_kernel{"logsigmoid"};
inline constinit UnarySlot1 leaky_relu_kernel{"leaky_relu"}, elu_kernel{"elu"};
inline constinit UnarySlot2 softplus_kernel{"softplus"};
inline constinit BinarySlot relu_backward_kernel{"relu_backward"},
    sigmoid_backward_kernel{"sigmoid_backward"}, tanh_backward_kernel{"tanh_backward"},
    silu_backward_kernel{"silu_backward"}, gelu_backward_kernel{"gelu_backward"},
    gelu_tanh_backward_kernel{"gelu_tanh_backward"};
inline constinit BinarySlot1 leaky_relu_backward_kernel{"leaky_relu_backward"},
    elu_backward_kernel{"elu_backward"};

inline constinit UnarySlot tan_kernel{"tan"}, asin_kernel{"asin"}, acos_kernel{"acos"}, atan_kernel{"atan"},
    sinh_kernel{"sinh"}, cosh_kernel{"cosh"}, asinh_kernel{"asinh"}, acosh_kernel{"acosh"}, atanh_kernel{"atanh"},
    exp2_kernel{"exp2"}, log2_kernel{"log2"}, log10_kernel{"log10"}, erfc_kernel{"erfc"}, erfinv_kernel{"erfinv"},
    lgamma_kernel{"lgamma"}, trunc_kernel{"trunc"}, isinf_kernel{"isinf"}, bitwise_not_kernel{"bitwise_not"};
inline constinit KernelSlot<void(const Tensor& out, const Tensor& x, int64_t n)> polygamma_kernel{"polygamma"};
inline constinit KernelSlot<void(const Tensor& out, const Tensor& x, double, double, double)> nan_to_num_kernel{
    "nan_to_num"};
inline constinit BinarySlot atan2_kernel{"atan2"}, fmod_kernel{"fmod"}, floor_divide_kernel{"floor_divide"}, trunc_divide_kernel{"div"},
    hypot_kernel{"hypot"}, copysign_kernel{"copysign"}, xlogy_kernel{"xlogy"}, logaddexp_kernel{"logaddexp"},
    heaviside_kernel{"heaviside"}, bitwise_and_kernel{"bitwise_and"}, bitwise_or_kernel{"bitwise_or"},
    bitwise_xor_kernel{"bitwise_xor"}, bitwise_left_shift_kernel{"bitwise_left_shift"},
    bitwise_right_shift_kernel{"bitwise_right_shift"}, prelu_kernel{"prelu"};
inline constinit UnarySlot selu_kernel{"selu"}, mish_kernel{"mish"}, hardsigmoid_kernel{"hardsigmoid"},
    hardswish_kernel{"hardswish"};
inline constinit UnarySlot1 celu_kernel{"celu"}, hardshrink_kernel{"hardshrink"}, softshrink_kernel{"softshrink"};
inline constinit UnarySlot2 threshold_kernel{"threshold"};

// The dtype that arithmetic yields: promote()'s, but a 0-dimensional operand counts only when its kind (bool,
// integer, float) is the higher one.
DType result_dtype(const Tensor& a, const Tensor& b);
inline DType result_dtype(const Tensor& x) { return x.dtype(); }
// The dtype of x with a number: x's, unless the number's kind is the higher one (f32, i64).
DType result_dtype(const Tensor& x, Number number);
// A 0-dimensional tensor for `number` as an operand next to x.
Tensor operand(Number number, const Tensor& x);

// a + b and so on. Errors: ShapeError, DTypeError, DeviceError.
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
Tensor round(const Tensor& x);  // halves to the even neighbour
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
