// Character-level text data sets: read_text reads a file, plain or gzip, into a string; Characters maps the
// bytes that occur in a text to the numbers 0, 1, ... in ascending order of bytes; TextWindows cuts a text
// into windows of `context` + 1 characters, whose first and last `context` numbers are input and target,
// i64[context].
#include "gradus/data/sets/text.h"

#include <algorithm>

#include "gradus/data/files/input_file.h"
#include "gradus/tensor/base/error.h"

namespace gradus::data {

std::string read_text(const std::filesystem::path& path, ReadTextOptions options) {
  constexpr int64_t kPart = int64_t{1} << 20;
  InputFile file(path, "read_text");
  std::string text;
  for (int64_t read = kPart; read == kPart;) {
    const size_t before = text.size();
    text.resize(before + kPart);
    read = file.read(text.data() + before, kPart);
    text.resize(before + size_t(read));
    if (int64_t(text.size()) > options.max_bytes)
      throw FileError("read_text", path.string(), ": expected at most ", options.max_bytes, " bytes");
  }
  if (text.empty()) throw FileError("read_text", path.string(), " is empty");
  return text;
}

Characters::Characters(std::string_view text) {
  if (text.empty()) throw ValueError("Characters", "expected a text that is not empty");
  number_.fill(-1);  // -1: not in the text
  for (const char c : text) number_[uint8_t(c)] = 0;
  for (int16_t c = 0; c < 256; ++c)
    if (int16_t& number = number_[size_t(c)]; number == 0) {
      number = int16_t(all_.size());
      all_ += char(c);
    }
}

namespace {

// Errors: ValueError if the character is not in the vocabulary.
int64_t checked_number(const Characters& characters, char c) {
  const int64_t number = characters.number(c);
  if (number < 0)
    throw ValueError("Characters", "the byte ", int(uint8_t(c)), " is not among the ", characters.size(),
                     " characters");
  return number;
}

}  // namespace

Tensor Characters::encode(std::string_view text) const {
  std::vector<int64_t> numbers;
  for (const char c : text) numbers.push_back(checked_number(*this, c));
  return tensor(numbers, {int64_t(numbers.size())});
}

std::string Characters::decode(const Tensor& numbers) const {
  std::string text;
  for (const int64_t n : numbers.to_vector<int64_t>()) {
    if (n < 0 || n >= size()) throw IndexError("Characters", "number ", n, " of ", size(), " characters");
    text += all_[size_t(n)];
  }
  return text;
}

TextWindows::TextWindows(const Characters& characters, std::string_view text, TextWindowsOptions options)
    : options_(std::move(options)) {
  if (options_.context < 1 || options_.stride < 1)
    throw ValueError("TextWindows", "expected context, stride >= 1, got ", *options_.context, " and ",
                     options_.stride);
  if (int64_t(text.size()) <= options_.context)
    throw ValueError("TextWindows", "expected a text longer than the context of ", *options_.context,
                     " characters, got ", text.size());
  numbers_.reserve(text.size());
  for (const char c : text) numbers_.push_back(uint8_t(checked_number(characters, c)));
}

int64_t TextWindows::size() const {
  return (int64_t(numbers_.size()) - options_.context - 1) / options_.stride + 1;
}

Sample TextWindows::get(int64_t index) const {
  check_index(index);
  return internal::next_character_sample(
      std::span(numbers_).subspan(size_t(index * options_.stride), size_t(options_.context + 1)));
}

Sample internal::next_character_sample(std::span<const uint8_t> numbers) {
  const std::vector<int64_t> all(numbers.begin(), numbers.end());
  const int64_t length = int64_t(all.size()) - 1;
  return {.input = tensor(std::vector(all.begin(), all.end() - 1), {length}),
          .target = tensor(std::vector(all.begin() + 1, all.end()), {length})};
}

}  // namespace gradus::data
