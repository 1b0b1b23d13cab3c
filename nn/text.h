// Formats numbers of at least 0 for tables: thousands separators and binary units.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

namespace gradus::nn {

// 1234567 -> "1,234,567"
inline std::string with_commas(int64_t n) {
  std::string s = std::to_string(n);
  for (int64_t i = static_cast<int64_t>(s.size()) - 3; i > 0; i -= 3)
    s.insert(static_cast<size_t>(i), 1, ',');
  return s;
}

// 1536 -> "1.5 KiB"
inline std::string format_bytes(int64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double v = static_cast<double>(bytes);
  int u = 0;
  while (v >= 1024 && u < 4) v /= 1024, ++u;
  char text[32];
  std::snprintf(text, sizeof text, u ? "%.1f %s" : "%.0f %s", v, units[u]);
  return text;
}

}  // namespace gradus::nn
