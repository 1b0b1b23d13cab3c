// The text to train on: from a file, or generated.
#pragma once

#include <optional>

#include "gradus/examples/text/args.h"

namespace gradus::examples {

struct Corpus {
  data::Characters characters;
  data::DatasetRef train, validation;
  // Of generated text: see data::GeneratedText.
  std::optional<double> entropy = {}, least_loss = {};
};

// The first nine tenths of a file are for training, the others for validation.
// Errors: FileError for a file that cannot be read; ValueError for a short text.
Corpus open_corpus(const TextArgs& a);

}  // namespace gradus::examples
