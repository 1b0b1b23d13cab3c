// Common checks of op arguments. `op` is the name of the op in the error, `name` that of the argument x. Tensors
// must be defined. Errors describe the tensors and suggest a conversion:
//
//   [linear] x is f64 but weight is f32: x f64[2,3] cpu, weight f32[4,3] cpu;
//            to(x, DType::kF32) converts x, net.to(DType::kF64) a module
#pragma once

#include <string>
#include <string_view>

#include "gradus/tensor/tensor.h"

namespace gradus {

namespace internal {
[[noreturn, gnu::cold]] void throw_not_floating(std::string_view op, std::string_view name, const Tensor& x);
[[noreturn, gnu::cold]] void throw_not_integers(std::string_view op, std::string_view what,
                                                std::string_view name, const Tensor& x);
[[noreturn, gnu::cold]] void throw_not_bool(std::string_view op, std::string_view name, const Tensor& x);
[[noreturn, gnu::cold]] void throw_dtype_mismatch(std::string_view op, std::string_view name, const Tensor& x,
                                                  std::string_view other_name, const Tensor& other);
[[noreturn, gnu::cold]] void throw_not_one_element(std::string_view op, std::string_view what,
                                                   const Tensor& x, std::string_view alternative);
[[gnu::cold]] bool are_compatible_with_meta(Device a, Device b);
}  // namespace internal

// Returns the end of an error about a dtype, for name "x" and dtype f32: "; to(x, DType::kF32) converts x".
std::string conversion_hint(std::string_view name, DType dtype);

// Checks that x has a floating dtype.
// Errors: DTypeError.
inline void check_floating(std::string_view op, std::string_view name, const Tensor& x) {
  if (!is_floating(x.dtype())) [[unlikely]]
    internal::throw_not_floating(op, name, x);
}

// Checks that x has an integer dtype other than bool. `what` describes the elements of x in the error ("class
// numbers").
// Errors: DTypeError.
inline void check_integers(std::string_view op, std::string_view what, std::string_view name,
                           const Tensor& x) {
  if (!is_integral(x.dtype()) || x.dtype() == DType::kBool) [[unlikely]]
    internal::throw_not_integers(op, what, name, x);
}

// Checks that x has dtype bool.
// Errors: DTypeError.
inline void check_bool(std::string_view op, std::string_view name, const Tensor& x) {
  if (x.dtype() != DType::kBool) [[unlikely]]
    internal::throw_not_bool(op, name, x);
}

// Checks that x has the dtype of `other`. The error suggests a conversion of x, so pass the data as x and a
// parameter as `other`.
// Errors: DTypeError.
inline void check_same_dtype(std::string_view op, std::string_view name, const Tensor& x,
                             std::string_view other_name, const Tensor& other) {
  if (x.dtype() != other.dtype()) [[unlikely]]
    internal::throw_dtype_mismatch(op, name, x, other_name, other);
}

// Returns whether an op may have operands on devices a and b: a == b, or one of them is meta while this thread's
// Context skips the kernels of meta tensors (Context::skip_meta_kernels).
inline bool are_compatible_devices(Device a, Device b) {
  return a == b || internal::are_compatible_with_meta(a, b);
}

// Checks that x has one element. `what` names x in the error ("the loss"). `alternative` is appended to the error's
// first clause and states an alternative: " (or pass its dy)".
// Errors: ShapeError.
inline void check_one_element(std::string_view op, std::string_view what, const Tensor& x,
                              std::string_view alternative = "") {
  if (x.numel() != 1) [[unlikely]]
    internal::throw_not_one_element(op, what, x, alternative);
}

// The end of errors about an empty list of parameters: explains which parameters a module has.
inline constexpr const char* kEmptyParametersHint =
    "a module's parameters() are those of the layers that were made with it as their parent: "
    "nn::Linear fc{this, \"fc\", {.in = 2, .out = 1}}";

}  // namespace gradus
