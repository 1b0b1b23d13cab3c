// Divides a text, or text from a Markov source, into sequences of a.context characters, each with the next
// characters as targets.
#include "gradus/examples/text/corpus.h"

#include <string_view>

namespace gradus::examples {
namespace {

constexpr int64_t kMaxValidation = 1000;  // sequences

Corpus generated(const TextArgs& a) {
  training::print("Training on generated text: --data FILE names a text");
  data::GeneratedText train({.context = a.context}),
      validation({.train = false, .size = kMaxValidation, .context = a.context});
  const double entropy = train.entropy(), least_loss = train.least_loss();
  return {.characters = train.characters(),
          .train = std::move(train),
          .validation = std::move(validation),
          .entropy = entropy,
          .least_loss = least_loss};
}

}  // namespace

Corpus open_corpus(const TextArgs& a) {
  if (a.data.empty()) return generated(a);
  const std::string name = std::filesystem::path(a.data).filename().string(), text = data::read_text(a.data);
  const std::string_view all = text, train = all.substr(0, all.size() - all.size() / 10);
  const data::Characters characters(text);
  // Training sequences overlap (stride 8), so that an epoch has each character at several positions.
  data::TextWindows windows(characters, train, {.context = a.context, .stride = 8, .name = name});
  data::TextWindows validation(characters, all.substr(train.size()),
                               {.context = a.context, .stride = a.context, .name = name});
  return {.characters = characters,
          .train = std::move(windows),
          .validation = data::Subset::first(std::move(validation), kMaxValidation)};
}

}  // namespace gradus::examples
