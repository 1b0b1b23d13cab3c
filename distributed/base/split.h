// split: divides a string at separator characters.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace gradus::dist::internal {

// Returns copies of the parts of `text` between characters of the set `separators`. Parts may be empty, but
// there is none after a separator at the end: split(",a,", ",") is {"", "a"}.
inline std::vector<std::string> split(std::string_view text, std::string_view separators) {
  std::vector<std::string> parts;
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = std::min(text.find_first_of(separators, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
  }
  return parts;
}

}  // namespace gradus::dist::internal
