// Text with numbers, by printf's patterns.
#pragma once

#include <cstdio>
#include <string>

namespace gradus::training {

// Returns the text; at most 511 characters of it.
template <class... Values> std::string format(const char* pattern, Values... values) {
  char text[512];
  std::snprintf(text, sizeof text, pattern, values...);
  return text;
}

}  // namespace gradus::training
