// GeneratedText: text that the program itself makes, for machines without files and network. How well a model
// can learn it is known.
//
//   const data::GeneratedText train({.context = 64}), validation({.train = false, .context = 64});
//   std::cout << train.least_loss() << '\n';  // no model's loss can be lower
#pragma once

#include <cstdint>
#include <string>

#include "gradus/data/sets/markov_source.h"
#include "gradus/data/sets/text.h"

namespace gradus::data {

struct GeneratedTextOptions {
  bool train = true;      // training and validation text are different draws
  int64_t size = 50'000;  // samples
  int64_t context = 64;   // characters of an input
  int64_t order = 2;      // as MarkovSource
  uint64_t seed = 0;      // of the source, and of what it draws
};

// What a MarkovSource of spaces and small letters draws. A sample depends on (order, seed, train, index)
// alone, up to its length. As with TextWindows, its target is the character that follows each of its input.
// Shapes: input, target i64[context].
class GeneratedText : public Dataset {
 public:
  // Errors: ValueError for a size below 1, a context outside [1, 2^20], and those of MarkovSource.
  explicit GeneratedText(GeneratedTextOptions options = {});

  std::string name() const override { return "GeneratedText"; }
  int64_t size() const override { return options_.size; }
  Sample get(int64_t index) const override;

  const Characters& characters() const { return characters_; }
  // Returns the entropy of a character given all before it, in nats.
  double entropy() const { return source_.entropy(); }
  // Returns the same given those before it in its sample, as a mean over the targets. It is a little more:
  // the first targets of a sample have few characters before them.
  double least_loss() const;

 private:
  GeneratedTextOptions options_;
  Characters characters_;
  MarkovSource source_;
};

}  // namespace gradus::data
