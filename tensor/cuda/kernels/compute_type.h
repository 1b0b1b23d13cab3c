// compute_t<T>: kernels compute elements T in this type, f32 for 16-bit floats, i32 for i8 and i16, else T.
#pragma once

#include <cstdint>
#include <type_traits>

#include "gradus/tensor/base/dtype.h"

namespace gradus::cuda {

template <class T>
using compute_t = std::conditional_t<
    std::is_same_v<T, f16> || std::is_same_v<T, bf16>, float,
    std::conditional_t<std::is_same_v<T, int16_t> || std::is_same_v<T, int8_t>, int32_t, T>>;

}  // namespace gradus::cuda
