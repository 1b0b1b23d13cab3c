// Raw element-wise ops as templates over functors: raw::unary<functors::Exp>(x). A functor (functor.h)
// defines the accepted dtypes, the op's name, and the function of one element. The templates check operands,
// infer dtype and shape of the result, allocate it, and call the functor's slot. Functors are in
// arithmetic.h, comparison.h, math.h and activations.h, each with a list of its slots, which the kernels of
// each device fill:
//
//   using ActivationSlots = raw::SlotList<raw::Unary<Relu>, raw::Binary<ReluBackward>, ...>;
//
// Operands broadcast. Results keep the operands' common layout. Nothing is recorded for gradients.
#pragma once

#include <concepts>
#include <initializer_list>
#include <type_traits>

#include "gradus/tensor/base/number.h"
#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/functor.h"
#include "gradus/tensor/tensor.h"

namespace gradus::raw {

// The slots of a functor by number of operands. Kernels receive the functor with its parameters.
template <class F> struct Unary {
  static KernelSlot<void(const Tensor& out, const Tensor& x, F f)> kernel;
};
template <class F> struct Binary {
  static KernelSlot<void(const Tensor& out, const Tensor& a, const Tensor& b, F f)> kernel;
};
template <class F> struct Ternary {
  static KernelSlot<void(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& c, F f)> kernel;
};
// A list of such slots.
template <class... Slots> struct SlotList {};

// Returns the result dtype of arithmetic: promote(), except that a 0-dimensional operand takes part only if
// its kind (bool < integer < floating) is higher than that of the other operand.
DType result_dtype(const Tensor& a, const Tensor& b);
inline DType result_dtype(const Tensor& x) { return x.dtype(); }
// Returns the result dtype of x with a number: x's dtype, unless the number's kind is higher (then the
// default dtype or i64).
DType result_dtype(const Tensor& x, Number number);
// Returns `number` as a 0-dimensional operand for x, in the dtype in which it takes part. An integer that
// does not fit into x's integer dtype keeps its low bits.
Tensor operand(Number number, const Tensor& x);

// Returns the dtype in which kernels compute F: for predicates the promoted dtype of the operands, else the
// dtype of the result.
template <class F, class... In> DType compute_type(const Tensor& out, const In&... in) {
  if constexpr (!F::template accepts<float> && !F::template accepts<int64_t>)
    return DType::kBool;
  else if constexpr (sizeof...(In) <= 2 && std::is_same_v<decltype(F{}((void(in), 0.f)...)), bool>)
    return result_dtype(in...);
  else
    return out.dtype();
}

// Calls g.operator()<T>() with the C++ type in which F computes dtype t: f32 for 16-bit floats, i32 for i8
// and i16, whose results are the low bits.
// Errors: DTypeError naming `op` if F does not accept T.
template <class F, class G> void with_compute_type(const char* op, DType t, G&& g) {
  auto call = [&]<class T>() {
    if constexpr (F::template accepts<T>)
      g.template operator()<T>();
    else
      throw DTypeError(op, "is not defined for ", name_of(t));
  };
  switch (t) {
    case DType::kF64:
      return call.template operator()<double>();
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return call.template operator()<float>();
    case DType::kI64:
      return call.template operator()<int64_t>();
    case DType::kI32:
    case DType::kI16:
    case DType::kI8:
      return call.template operator()<int32_t>();
    case DType::kU8:
      return call.template operator()<uint8_t>();
    case DType::kBool:
      return call.template operator()<bool>();
  }
}

// Returns an uninitialized tensor for the result of an op on operands that broadcast. Its layout is that of
// the operands with the full shape if they agree, else channels-last if one of them is, else row-major.
// Errors: ShapeError, DeviceError.
Tensor empty_result(const char* op, DType dtype, std::initializer_list<const Tensor*> operands);

// Returns src for an in-place op on dst: a copy if src overlaps dst with a different element order.
// Errors: ShapeError unless src broadcasts to dst; DeviceError; DTypeError if src's kind (bool < integer <
// floating) is higher than dst's.
Tensor source_for(const char* op, const Tensor& dst, const Tensor& src);

namespace internal {

// Errors: DTypeError: of throw_no_bool always, of check_integral unless x is integral, of check_backward
// unless both are floating, of check_destination if only_floats and dst is not floating. ShapeError of
// check_destination if elements of dst share memory.
[[noreturn]] void throw_no_bool(const char* op, const Tensor& x);
void check_integral(const char* op, const Tensor& x);
void check_backward(const char* op, const Tensor& dy, const Tensor& x);
void check_destination(const char* op, const Tensor& dst, bool only_floats);

template <class F> constexpr bool only_floats = !F::template accepts<int64_t> && !F::template accepts<bool>;
// Whether F is a predicate: its result is bool.
template <class F, class... In>
constexpr bool yields_bool =
    std::derived_from<F, functors::OnBools> || std::is_same_v<decltype(F{}(In()...)), bool>;

// Returns the dtype of F's result if its operands promote to t.
// Errors: DTypeError if F does not accept t.
template <class F> DType result_of(DType t, const Tensor& x) {
  if constexpr (only_floats<F>) {
    if (!is_floating(t)) t = get_default_dtype();
  } else if constexpr (!F::template accepts<bool>) {
    if (t == DType::kBool) throw_no_bool(F::name, x);
  }
  return t;
}

// A functor parameter, which converts to the type of the functor's member.
template <class P> struct Parameter {
  P value;
  template <class T> constexpr operator T() const { return static_cast<T>(value); }
};

// Returns F with its parameters. A missing parameter is a compile error.
template <class F, class... P> F functor(P... parameters) {
  static_assert(
      !requires {
        F{{}, Parameter<P>{parameters}..., Parameter<int>{}};
      }, "the functor has more parameters than these");
  return F{{}, Parameter<P>{parameters}...};
}

}  // namespace internal

// Returns F of each element. A predicate's result is bool. Functors of only floats compute integers in the
// default dtype; rounding functions (OnFractions) return a copy of integers. Errors: DTypeError.
template <class F, class... P> Tensor unary(const Tensor& x, P... parameters) {
  if constexpr (std::derived_from<F, functors::OnFractions>)
    if (!is_floating(x.dtype())) return raw::clone(x);
  if constexpr (std::derived_from<F, functors::OnIntegers>) internal::check_integral(F::name, x);
  const bool is_predicate = internal::yields_bool<F, float>;
  Tensor y = empty_like(x, is_predicate ? DType::kBool : internal::result_of<F>(x.dtype(), x));
  Unary<F>::kernel(y, x, internal::functor<F>(parameters...));
  return y;
}

// Returns F of each pair of elements. A predicate's result is bool.
// Errors: ShapeError, DTypeError, DeviceError.
template <class F, class... P> Tensor binary(const Tensor& a, const Tensor& b, P... parameters) {
  if constexpr (std::derived_from<F, functors::OnIntegers>)
    internal::check_integral(F::name, a), internal::check_integral(F::name, b);
  const bool is_predicate = internal::yields_bool<F, float, float>;
  Tensor y = empty_result(
      F::name, is_predicate ? DType::kBool : internal::result_of<F>(result_dtype(a, b), a), {&a, &b});
  Binary<F>::kernel(y, a, b, internal::functor<F>(parameters...));
  return y;
}

// Returns a fused gradient F(dy, x), in dy's dtype. Writes it to `out` if defined, which has the result's
// shape and dtype and may share dy's buffer.
// Errors: ShapeError, DTypeError, DeviceError.
template <class F, class... P>
Tensor backward(const Tensor& dy, const Tensor& x, const Tensor& out = {}, P... parameters) {
  internal::check_backward(F::name, dy, x);
  Tensor dx = out ? out : empty_result(F::name, dy.dtype(), {&dy, &x});
  Binary<F>::kernel(dx, dy, x, internal::functor<F>(parameters...));
  if (out) out.storage()->bump_version();
  return dx;
}

// dst = F(dst) in place. Increments dst's version. `op` is the name in errors.
// Errors: DTypeError unless F accepts dst's dtype; ShapeError if elements of dst share memory.
template <class F, class... P> void unary_(const char* op, const Tensor& dst, P... parameters) {
  internal::check_destination(op, dst, internal::only_floats<F>);
  internal::result_of<F>(dst.dtype(), dst);
  Unary<F>::kernel(dst, dst, internal::functor<F>(parameters...));
  dst.storage()->bump_version();
}

// dst = F(dst, src) in place. src broadcasts to dst.
// Errors: those of unary_, and ShapeError, DeviceError.
template <class F, class... P>
void binary_(const char* op, const Tensor& dst, const Tensor& src, P... parameters) {
  const Tensor source = source_for(op, dst, src);
  internal::check_destination(op, dst, internal::only_floats<F>);
  internal::result_of<F>(dst.dtype(), dst);
  Binary<F>::kernel(dst, dst, source, internal::functor<F>(parameters...));
  dst.storage()->bump_version();
}

}  // namespace gradus::raw
