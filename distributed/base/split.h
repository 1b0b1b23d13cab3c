// split: the parts of a text between separators.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace gradus::dist::internal {

// Returns the parts of a text between any of the `separators`. Parts may be empty, except after the last separator.
inline std::vector<std::string> split(std::string_view text, std::string_view separators) {
  std::vector<std::string> parts;
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = std::min(text.find_first_of(separators, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
  }
  return parts;
}

}  // namespace gradus::dist::internal
