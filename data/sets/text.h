// Character-level text data sets for language models.
//
//   const std::string text = data::read_text("input.txt");
//   const data::Characters characters(text);
//   const data::TextWindows train(characters, text, {.context = 64});
//   data::DataLoader loader(train, {.batch_size = 16, .shuffle = true});  // input and target i64[16,64]
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gradus/data/dataset.h"
#include "gradus/tensor/base/required.h"

namespace gradus::data {

struct ReadTextOptions {
  int64_t max_bytes = int64_t{1} << 27;  // of the unpacked text
};

// Reads a whole file, plain or gzip.
// Errors: FileError for a file that is missing, damaged, empty or longer than max_bytes.
std::string read_text(const std::filesystem::path& file, ReadTextOptions options = {});

// A character vocabulary: maps the bytes that occur in a text to numbers.
class Characters {
 public:
  // Numbers the characters that occur in `text`, in ascending order.
  // Errors: ValueError for an empty text.
  explicit Characters(std::string_view text);

  int64_t size() const { return int64_t(all_.size()); }
  const std::string& all() const { return all_; }  // all characters, by number
  // Returns the number of a character; -1 if it is not in the vocabulary.
  int64_t number(char c) const { return number_[uint8_t(c)]; }

  // encode returns the numbers of the T characters of a text, i64[T]. decode returns the text of numbers, an
  // integer tensor of any shape, read in row-major order.
  // Errors: ValueError for a character that is not in the vocabulary; IndexError for a number outside [0, size()).
  Tensor encode(std::string_view text) const;
  std::string decode(const Tensor& numbers) const;

 private:
  std::string all_;
  std::array<int16_t, 256> number_;
};

struct TextWindowsOptions {
  Required<int64_t, "context"> context;  // characters per input
  int64_t stride = 1;                    // distance between the starts of consecutive windows
  std::string name = "TextWindows";
};

// Windows of a text: with b = i * stride, sample i has input text[b, b + context) and target text[b + 1, b +
// context + 1).
// Shapes: input, target i64[context].
class TextWindows : public Dataset {
 public:
  // Errors: ValueError for a context or stride below 1, a text of fewer than context + 1 characters, and a
  // character that is not in the vocabulary.
  TextWindows(const Characters& characters, std::string_view text, TextWindowsOptions options);

  std::string name() const override { return options_.name; }
  int64_t size() const override;
  Sample get(int64_t index) const override;

 private:
  TextWindowsOptions options_;
  std::vector<uint8_t> numbers_;
};

namespace internal {
// numbers[T + 1], not empty -> input i64 numbers[0, T), target i64 numbers[1, T + 1).
Sample next_character_sample(std::span<const uint8_t> numbers);
}  // namespace internal

}  // namespace gradus::data
