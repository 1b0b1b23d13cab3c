// Raw element-wise ops, by their functors: raw::unary<functors::Exp>(x). The functor says which dtypes it
// accepts, what it is called, and what it computes for one element (elementwise_functors.h). These templates
// check, find the dtype and shape of the result, allocate it, and call the functor's slot. The file of
// tensor/cpu/elementwise/ that has the kernel instantiates the slot:
//
//   template struct Unary<LogSigmoid>;
//
// Operands broadcast. Results keep the operands' common layout.
#pragma once

#include <concepts>
#include <type_traits>

#include "gradus/tensor/kernel.h"
#include "gradus/tensor/ops/copy.h"
#include "gradus/tensor/ops/elementwise.h"
#include "gradus/tensor/ops/elementwise_functors.h"
#include "gradus/tensor/ops/elementwise_result.h"

namespace gradus::raw {

// The slot of a functor F, for the types P of its parameters.
template <class F, class... P> struct Unary {
  static KernelSlot<void(const Tensor& out, const Tensor& x, P...)> kernel;
};
template <class F, class... P> struct Binary {
  static KernelSlot<void(const Tensor& out, const Tensor& a, const Tensor& b, P...)> kernel;
};
template <class F, class... P> struct Ternary {
  static KernelSlot<void(const Tensor& out, const Tensor& a, const Tensor& b, const Tensor& c, P...)> kernel;
};

namespace internal {

// Errors: DTypeError.
[[noreturn]] void throw_no_bool(const char* op, const Tensor& x);
void check_integral(const char* op, const Tensor& x);
void check_floating(const char* op, DType t, const Tensor& x);
void check_backward(const char* op, const Tensor& dy, const Tensor& x);
void check_destination(const char* op, const Tensor& dst, bool only_floats);

template <class F> constexpr bool only_floats = !F::template accepts<int64_t> && !F::template accepts<bool>;
template <class F, class... In>
constexpr bool yields_bool =
    std::derived_from<F, functors::OnBools> || std::is_same_v<decltype(F{}(In()...)), bool>;

// The dtype of F's result where its operands promote to t.
// Errors: DTypeError where F does not accept t.
template <class F> DType result_of(DType t, const Tensor& x) {
  if constexpr (only_floats<F>) {
    if (!is_floating(t)) t = get_default_dtype();
  } else if constexpr (!F::template accepts<bool>) {
    if (t == DType::kBool) throw_no_bool(F::name, x);
  }
  return t;
}

}  // namespace internal

// Computes F of each element. A predicate's result is bool.
// Errors: DTypeError.
template <class F, class... P> Tensor unary(const Tensor& x, P... parameters) {
  if constexpr (std::derived_from<F, functors::OnFractions>)
    if (!is_floating(x.dtype())) return raw::clone(x);
  if constexpr (std::derived_from<F, functors::OnIntegers>) internal::check_integral(F::name, x);
  const bool is_predicate = internal::yields_bool<F, float>;
  Tensor y = empty_like(x, is_predicate ? DType::kBool : internal::result_of<F>(x.dtype(), x));
  Unary<F, P...>::kernel(y, x, parameters...);
  return y;
}

// Computes F of each pair of elements. A predicate's result is bool.
// Errors: ShapeError, DTypeError, DeviceError.
template <class F, class... P> Tensor binary(const Tensor& a, const Tensor& b, P... parameters) {
  if constexpr (std::derived_from<F, functors::OnIntegers>)
    internal::check_integral(F::name, a), internal::check_integral(F::name, b);
  const bool is_predicate = internal::yields_bool<F, float, float>;
  Tensor y = empty_result(
      F::name, is_predicate ? DType::kBool : internal::result_of<F>(result_dtype(a, b), a), {&a, &b});
  Binary<F, P...>::kernel(y, a, b, parameters...);
  return y;
}

// Computes a fused gradient, with dy's dtype. `out`, where given, receives it, and may share dy's buffer.
// Errors: ShapeError, DTypeError, DeviceError.
template <class F, class... P>
Tensor backward(const Tensor& dy, const Tensor& x, const Tensor& out, P... parameters) {
  internal::check_backward(F::name, dy, x);
  Tensor dx = out ? out : empty_result(F::name, dy.dtype(), {&dy, &x});
  Binary<F, P...>::kernel(dx, dy, x, parameters...);
  if (out) out.storage()->bump_version();
  return dx;
}

template <class F> Tensor backward(const Tensor& dy, const Tensor& x) { return backward<F>(dy, x, Tensor()); }

// Computes F of each element of dst in its place, and bumps dst's version. `op` is the name in errors.
// Errors: DTypeError unless the result fits dst's dtype; StateError unless dst may be written to.
template <class F, class... P> void unary_(const char* op, const Tensor& dst, P... parameters) {
  internal::check_destination(op, dst, internal::only_floats<F>);
  internal::result_of<F>(dst.dtype(), dst);
  Unary<F, P...>::kernel(dst, dst, parameters...);
  dst.storage()->bump_version();
}

// The same of dst and src, which broadcasts to dst.
// Errors: and ShapeError, DeviceError.
template <class F, class... P>
void binary_(const char* op, const Tensor& dst, const Tensor& src, P... parameters) {
  const Tensor source = source_for(op, dst, src);
  internal::check_destination(op, dst, internal::only_floats<F>);
  internal::result_of<F>(dst.dtype(), dst);
  Binary<F, P...>::kernel(dst, dst, source, parameters...);
  dst.storage()->bump_version();
}

}  // namespace gradus::raw
