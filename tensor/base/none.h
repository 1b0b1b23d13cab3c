// None, as in Python: an omitted argument. Converts to an empty std::optional; constructors of other classes
// make it an undefined Tensor, an omitted bound of a Slice, or a new dim in x[{None, ...}].
#pragma once

#include <optional>

namespace gradus {

struct NoneType {
  template <class T> constexpr operator std::optional<T>() const { return std::nullopt; }
};
inline constexpr NoneType None;

}  // namespace gradus
