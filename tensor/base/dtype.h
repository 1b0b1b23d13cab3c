// Element types (DType), their names and sizes in bytes, the C++ storage types of 16-bit floats, type
// promotion, and dispatch from a runtime DType to a C++ type. Arithmetic on bf16 and f16 goes through
// implicit conversions to float.
//
//   dispatch_floating(x.dtype(), "relu", [&]<class T>() { relu_kernel<T>(...); });
#pragma once

#include <bit>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <type_traits>

#include "gradus/tensor/base/error.h"

namespace gradus {

// The order matters: floating types first, and tables below are indexed by the enumerator.
enum class DType : uint8_t { kF64, kF32, kF16, kBF16, kI64, kI32, kI16, kI8, kU8, kBool };

// bfloat16: the upper half of an f32. Conversion rounds to nearest even; NaN stays NaN.
struct bf16 {
  uint16_t bits = 0;
  bf16() = default;
  bf16(float f) {
    const uint32_t u = std::bit_cast<uint32_t>(f);
    bits = f != f ? uint16_t((u >> 16) | 0x40) : uint16_t((u + 0x7fff + ((u >> 16) & 1)) >> 16);
  }
  operator float() const { return std::bit_cast<float>(uint32_t(bits) << 16); }
};

namespace internal {
#if defined(__aarch64__)
using Half = __fp16;  // g++ 12 has no _Float16 there
#elif defined(__FLT16_MANT_DIG__)
using Half = _Float16;
#endif
// Conversions, rounding to nearest even, for compilers without a 16-bit float type (clang 14 on x86). Defined
// in a file that another compiler compiles.
uint16_t float_to_half(float f);
float half_to_float(uint16_t half);
}  // namespace internal

// IEEE 754 binary16 as a storage type; arithmetic is in f32.
struct f16 {
  uint16_t bits = 0;
  f16() = default;
#ifdef __FLT16_MANT_DIG__
  f16(float f) : bits(std::bit_cast<uint16_t>(static_cast<internal::Half>(f))) {}
  operator float() const { return static_cast<float>(std::bit_cast<internal::Half>(bits)); }
#else
  f16(float f) : bits(internal::float_to_half(f)) {}
  operator float() const { return internal::half_to_float(bits); }
#endif
};

// clang-format off
// dtype_v<T> is the DType of the C++ type T.
template <class T> struct dtype_of;
template <> struct dtype_of<double>  { static constexpr DType value = DType::kF64; };
template <> struct dtype_of<float>   { static constexpr DType value = DType::kF32; };
template <> struct dtype_of<f16>     { static constexpr DType value = DType::kF16; };
template <> struct dtype_of<bf16>    { static constexpr DType value = DType::kBF16; };
template <> struct dtype_of<int64_t> { static constexpr DType value = DType::kI64; };
template <> struct dtype_of<int32_t> { static constexpr DType value = DType::kI32; };
template <> struct dtype_of<int16_t> { static constexpr DType value = DType::kI16; };
template <> struct dtype_of<int8_t>  { static constexpr DType value = DType::kI8; };
template <> struct dtype_of<uint8_t> { static constexpr DType value = DType::kU8; };
template <> struct dtype_of<bool>    { static constexpr DType value = DType::kBool; };
template <class T> inline constexpr DType dtype_v = dtype_of<T>::value;
// clang-format on

// The C++ types that are element types of a dtype. unsigned int, size_t, char and long double are not.
template <class T>
concept DTypeElement = requires { dtype_of<T>::value; };

constexpr int64_t size_of(DType t) {
  constexpr int64_t kSizes[] = {8, 4, 2, 2, 8, 4, 2, 1, 1, 1};
  return kSizes[static_cast<int>(t)];
}
constexpr bool is_floating(DType t) { return t <= DType::kBF16; }
constexpr bool is_integral(DType t) { return t > DType::kBF16; }  // bool included

// "f32", "i64", ...
constexpr std::string_view name_of(DType t) {
  constexpr std::string_view kNames[] = {"f64", "f32", "f16", "bf16", "i64",
                                         "i32", "i16", "i8",  "u8",   "bool"};
  return kNames[static_cast<int>(t)];
}
inline std::string to_string(DType t) { return std::string(name_of(t)); }
std::ostream& operator<<(std::ostream& out, DType t);

// Returns the result dtype of arithmetic between a and b, as PyTorch for tensors of 1 or more dims: a
// floating dtype with an integer dtype gives the floating one; two dtypes of one kind give the wider one; f16
// with bf16 gives f32; u8 with a signed integer gives the signed dtype, except that u8 with i8 gives i16.
// bool counts as the narrowest integer dtype.
DType promote(DType a, DType b);

// Returns the default dtype, initially f32: the dtype of floating-point tensors that are created without a
// dtype, by factories and modules (TensorOptions), by ops with fractional results of integers (div, exp,
// ...), and by a floating-point number combined with an integer tensor.
DType get_default_dtype();
// Sets the default dtype of the process. Must be called before other threads create tensors. Existing tensors
// keep their dtype; net.to(dtype) converts a model.
// Errors: DTypeError unless `t` is a floating-point dtype.
void set_default_dtype(DType t);

// Calls `f.operator()<T>()` with T = double or float.
// Errors: DTypeError naming `op` for every other dtype.
template <class F> decltype(auto) dispatch_floating(DType t, std::string_view op, F&& f) {
  switch (t) {
    case DType::kF32:
      return f.template operator()<float>();
    case DType::kF64:
      return f.template operator()<double>();
    default:
      throw DTypeError(op, "expected f32 or f64, got ", name_of(t));
  }
}

// Calls `f.operator()<T>()` with T = double, float, int64_t, int32_t, int16_t, int8_t or uint8_t.
// Errors: DTypeError naming `op` for every other dtype.
template <class F> decltype(auto) dispatch_numeric(DType t, std::string_view op, F&& f) {
  switch (t) {
    case DType::kF32:
      return f.template operator()<float>();
    case DType::kF64:
      return f.template operator()<double>();
    case DType::kI64:
      return f.template operator()<int64_t>();
    case DType::kI32:
      return f.template operator()<int32_t>();
    case DType::kI16:
      return f.template operator()<int16_t>();
    case DType::kI8:
      return f.template operator()<int8_t>();
    case DType::kU8:
      return f.template operator()<uint8_t>();
    default:
      throw DTypeError(op, "expected f32, f64, i64, i32, i16, i8 or u8, got ", name_of(t));
  }
}

// Calls `f.operator()<T>()` with the C++ type of any dtype.
template <class F> decltype(auto) dispatch_all(DType t, F&& f) {
  switch (t) {
    case DType::kF64:
      return f.template operator()<double>();
    case DType::kF32:
      return f.template operator()<float>();
    case DType::kF16:
      return f.template operator()<f16>();
    case DType::kBF16:
      return f.template operator()<bf16>();
    case DType::kI64:
      return f.template operator()<int64_t>();
    case DType::kI32:
      return f.template operator()<int32_t>();
    case DType::kI16:
      return f.template operator()<int16_t>();
    case DType::kI8:
      return f.template operator()<int8_t>();
    case DType::kU8:
      return f.template operator()<uint8_t>();
    case DType::kBool:
      return f.template operator()<bool>();
  }
  throw InternalError("dispatch_all: unknown dtype ", int(t));
}

}  // namespace gradus
