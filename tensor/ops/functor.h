// Functors: what an element-wise op computes for one element, written once for the CPU and for GPUs.
//
// The base of a functor says which element types it accepts. 16-bit floats are computed as float. Parameters
// are doubles (64-bit integers where the op needs them), in the order of the op's arguments.
#pragma once

#include <cstdint>
#include <type_traits>

#include "gradus/tensor/ops/scalar_math.h"

namespace gradus::functors {

struct OnFloats {
  template <class T> static constexpr bool accepts = std::is_floating_point_v<T>;
};
struct OnNumbers {
  template <class T> static constexpr bool accepts = !std::is_same_v<T, bool>;
};
struct OnAll {
  template <class T> static constexpr bool accepts = true;
};
// Integers are their own results.
struct OnFractions : OnFloats {};
struct OnIntegers {
  template <class T> static constexpr bool accepts = std::is_integral_v<T>;
};
struct OnBools {
  template <class T> static constexpr bool accepts = std::is_same_v<T, bool>;
};

// Signed integers wrap, as the hardware's do: they are added and multiplied as unsigned ones.
template <class T> struct Wrapping {
  using type = T;
};
template <> struct Wrapping<int32_t> {
  using type = uint32_t;
};
template <> struct Wrapping<int64_t> {
  using type = uint64_t;
};
template <class T> using W = typename Wrapping<T>::type;

}  // namespace gradus::functors
