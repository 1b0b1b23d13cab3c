// The types that elements are computed in: 16-bit floats in f32, i16 and i8 in i32, all others in their own.
#pragma once

#include <cstdint>

#include "gradus/tensor/base/dtype.h"

namespace gradus::cuda {

template <class T> struct ComputeOf {
  using type = T;
};
template <> struct ComputeOf<f16> {
  using type = float;
};
template <> struct ComputeOf<bf16> {
  using type = float;
};
template <> struct ComputeOf<int16_t> {
  using type = int32_t;
};
template <> struct ComputeOf<int8_t> {
  using type = int32_t;
};
template <class T> using compute_t = typename ComputeOf<T>::type;

}  // namespace gradus::cuda
