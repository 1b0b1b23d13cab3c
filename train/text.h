// Formatting by printf's patterns.
#pragma once

#include <cstdio>
#include <string>

namespace gradus::training {

// Returns at most 511 characters.
template <class... Values> std::string format(const char* pattern, Values... values) {
  char text[512];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

}  // namespace gradus::training
