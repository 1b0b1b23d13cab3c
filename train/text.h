// Formatting by printf's patterns.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>

namespace gradus::training {

// Returns at most 511 characters. %s also takes a std::string, and %lld an int64_t. The pattern must fit the
// values: as in printf, nothing is checked.
template <class... Values> std::string format_text(const char* pattern, const Values&... values) {
  const auto argument = []<class T>(const T& v) {
    if constexpr (std::is_same_v<T, std::string>)
      return v.c_str();
    else if constexpr (std::is_same_v<T, int64_t>)
      return static_cast<long long>(v);
    else
      return v;
  };
  char text[512];
  std::snprintf(text, sizeof text, pattern, argument(values)...);
  return text;
}

}  // namespace gradus::training
