// The types that elements are computed in: 16-bit floats in f32, i16 and i8 in i32, all others in their own.
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
