// None: nothing given, in one spelling for all: an undefined Tensor, an empty std::optional, a bound that a
// Slice has not, a new dim in x[{None, ...}].
#pragma once

#include <optional>

namespace gradus {

struct NoneType {
  template <class T>
  constexpr operator std::optional<T>() const {
    return std::nullopt;
  }
};
inline constexpr NoneType None;

}  // namespace gradus
