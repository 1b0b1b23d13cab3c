// What many ops ask of tensors, with errors that say what to do:
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
[[noreturn, gnu::cold]] void throw_other_dtype(std::string_view op, std::string_view name, const Tensor& x,
                                               std::string_view other_name, const Tensor& other);
[[noreturn, gnu::cold]] void throw_not_one_element(std::string_view op, std::string_view what,
                                                   const Tensor& x, std::string_view otherwise);
}  // namespace internal

// "; to(x, DType::kF32) converts x": the end of an error about a dtype.
std::string how_to_convert(std::string_view name, DType dtype);

// Errors: DTypeError unless x is floating point.
inline void check_floating(std::string_view op, std::string_view name, const Tensor& x) {
  if (!is_floating(x.dtype())) [[unlikely]]
    internal::throw_not_floating(op, name, x);
}

// Errors: DTypeError unless x, which are `what` ("class numbers"), is of integers; bools are none.
inline void check_integers(std::string_view op, std::string_view what, std::string_view name,
                           const Tensor& x) {
  if (!is_integral(x.dtype()) || x.dtype() == DType::kBool) [[unlikely]]
    internal::throw_not_integers(op, what, name, x);
}

// Errors: DTypeError unless x is of bools.
inline void check_bool(std::string_view op, std::string_view name, const Tensor& x) {
  if (x.dtype() != DType::kBool) [[unlikely]]
    internal::throw_not_bool(op, name, x);
}

// Errors: DTypeError unless x has the dtype of `other`. x is what one would convert: data
// rather than parameters.
inline void check_same_dtype(std::string_view op, std::string_view name, const Tensor& x,
                             std::string_view other_name, const Tensor& other) {
  if (x.dtype() != other.dtype()) [[unlikely]]
    internal::throw_other_dtype(op, name, x, other_name, other);
}

// Errors: ShapeError unless x, which is `what` ("the loss"), has one element. `otherwise` says
// what else would do.
inline void check_one_element(std::string_view op, std::string_view what, const Tensor& x,
                              std::string_view otherwise = "") {
  if (x.numel() != 1) [[unlikely]]
    internal::throw_not_one_element(op, what, x, otherwise);
}

// Why a list of parameters may be empty.
inline constexpr const char* kWhoseParameters =
    "a module's parameters() are those of the layers that were made with it as their parent: "
    "nn::Linear fc{this, \"fc\", {.in = 2, .out = 1}}";

}  // namespace gradus
