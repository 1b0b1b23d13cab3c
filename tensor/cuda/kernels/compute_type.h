// compute_t<T>: the type in which kernels compute elements that are stored as T: f32 for f16 and bf16, i32
// for i16 and i8, otherwise T itself.
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
