// Conversion of single elements in device code: between dtypes in memory and the types they are computed in
// (compute_t<T> in compute_type.h: f32 for 16-bit floats, i32 for i8 and i16, else T); access by dtype.
#pragma once

#include <cstdint>
#include <type_traits>

#include "gradus/tensor/base/dtype.h"
#include "gradus/tensor/cuda/kernels/compute_type.h"
#include "gradus/tensor/cuda/kernels/kernel.h"

namespace gradus::cuda {

// Returns x in the type to compute in, exactly.
template <class T> __device__ __forceinline__ compute_t<T> widen(T x) {
  if constexpr (std::is_same_v<T, f16>)
    return f16_to_float(x.bits);
  else if constexpr (std::is_same_v<T, bf16>)
    return __builtin_bit_cast(float, uint32_t(x.bits) << 16);
  else
    return x;
}

// Converts x to To: floats round to the nearest, floats to integers truncate, bool is x != 0. Results equal
// those of the CPU if x is in the range of To; floats out of range of an integer To can differ.
template <class To, class From> __device__ __forceinline__ To convert(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (!std::is_same_v<From, compute_t<From>>) {
    return convert<To>(widen(x));
  } else if constexpr (std::is_same_v<To, f16>) {
    f16 y;
    y.bits = float_to_f16(static_cast<float>(x));
    return y;
  } else if constexpr (std::is_same_v<To, bf16>) {
    bf16 y;
    y.bits = float_to_bf16(static_cast<float>(x));
    return y;
  } else if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_integral_v<To> && sizeof(To) < 4 && std::is_floating_point_v<From>) {
    return static_cast<To>(static_cast<int32_t>(x));
  } else {
    return static_cast<To>(x);
  }
}

// Calls f(T()) with the C++ type T of the dtype's elements, on the host or on the device. Returns its result.
template <class F> __host__ __device__ __forceinline__ auto with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF64:
      return f(double());
    case DType::kF32:
      return f(float());
    case DType::kF16:
      return f(f16());
    case DType::kBF16:
      return f(bf16());
    case DType::kI64:
      return f(int64_t());
    case DType::kI32:
      return f(int32_t());
    case DType::kI16:
      return f(int16_t());
    case DType::kI8:
      return f(int8_t());
    case DType::kU8:
      return f(uint8_t());
    default:
      return f(bool());
  }
}

// Calls f(T()) if the dtype is floating point, else does nothing. Instantiates f for such types only.
template <class F> void with_float(DType dtype, F&& f) {
  with_type(dtype, [&](auto type) {
    if constexpr (is_floating(dtype_v<decltype(type)>)) f(type);
  });
}

// Calls f(W()) with the unsigned integer W of 1, 2, 4 or 8 bytes, for kernels that only move elements.
template <class F> void with_unsigned(int64_t bytes, F&& f) {
  bytes == 1 ? f(uint8_t()) : bytes == 2 ? f(uint16_t()) : bytes == 4 ? f(uint32_t()) : f(uint64_t());
}

// load_as reads, and store_as writes, element i of an array whose dtype is known at run time, with
// conversion. The dtype is equal for the whole grid, so its branches do not diverge.
template <class To> __device__ __forceinline__ To load_as(const void* data, DType dtype, int64_t i) {
  return with_type(dtype,
                   [&](auto type) { return convert<To>(static_cast<const decltype(type)*>(data)[i]); });
}
template <class From> __device__ __forceinline__ void store_as(void* data, DType dtype, int64_t i, From x) {
  with_type(dtype, [&](auto type) { static_cast<decltype(type)*>(data)[i] = convert<decltype(type)>(x); });
}

}  // namespace gradus::cuda
