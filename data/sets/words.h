// Helpers to parse text files of data sets: words and numbers.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

namespace gradus::data::internal {

constexpr std::string_view kBlanks = " \t\r\n";

// Removes and returns the text up to the next of `ends`, without blanks before it; all text if there is none.
inline std::string_view take_until(std::string_view& text, std::string_view ends) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  const std::string_view taken = text.substr(0, text.find_first_of(ends));
  text.remove_prefix(taken.size());
  return taken;
}

// Removes and returns the next word; empty at the end.
inline std::string_view take_word(std::string_view& text) { return take_until(text, kBlanks); }

// Returns the beginning of a word, for an error.
inline std::string_view shown(std::string_view word) { return word.substr(0, 64); }

// Returns the number that is the whole word; nullopt if it is none, or not finite.
inline std::optional<double> to_number(std::string_view word) {
  double value;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

// Returns whether `word` names a file in a folder, and no other folder.
inline bool is_file_name(std::string_view word) {
  return !word.empty() && word != "." && word != ".." && word.find('/') == std::string_view::npos &&
         word.find('\0') == std::string_view::npos;
}

}  // namespace gradus::data::internal
