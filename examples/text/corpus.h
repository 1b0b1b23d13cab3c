// The text to train on: from a file, or generated.
#pragma once

#include <optional>

#include "gradus/examples/text/args.h"

namespace gradus::examples {

struct Corpus {
  data::Characters characters;
  data::DatasetRef train, validation;
  // Of generated text, in nats per character (data::GeneratedText); nullopt for a file.
  std::optional<double> entropy = {}, least_loss = {};
};

// Reads the file a.data, or generates text. The first nine tenths of a file are for training, the rest for
// validation.
// Errors: FileError for a file that cannot be read; ValueError for a short text.
Corpus open_corpus(const TextArgs& a);

}  // namespace gradus::examples
