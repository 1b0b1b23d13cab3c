#include "gradus/data/sets/generated_text.h"

#include "gradus/tensor/base/error.h"

namespace gradus::data {

GeneratedText::GeneratedText(GeneratedTextOptions options)
    : options_(options),
      characters_(" abcdefghijklmnopqrstuvwxyz"),
      source_({.characters = characters_.size(), .order = options.order, .seed = options.seed}) {
  if (options_.size < 1 || options_.context < 1 || options_.context > int64_t{1} << 20)
    throw ValueError("GeneratedText", "expected a size >= 1 and a context from 1 to 2^20, got ",
                     options_.size, " and ", options_.context);
}

Sample GeneratedText::get(int64_t index) const {
  check_index(index);
  // Stream 0 is used for the source's probabilities.
  const uint64_t stream = 2 * uint64_t(index) + (options_.train ? 1 : 2);
  return internal::next_character_sample(source_.draw(options_.context + 1, options_.seed, stream));
}

double GeneratedText::least_loss() const {
  return (source_.entropy(options_.context + 1) - source_.entropy(1)) / double(options_.context);
}

}  // namespace gradus::data
