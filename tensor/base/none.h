// None, as in Python: an omitted argument. Converts to an undefined Tensor, to an empty std::optional, to an
// omitted bound of a Slice, and to a new dim in x[{None, ...}].
#pragma once

#include <optional>

namespace gradus {

struct NoneType {
  template <class T> constexpr operator std::optional<T>() const { return std::nullopt; }
};
inline constexpr NoneType None;

}  // namespace gradus
