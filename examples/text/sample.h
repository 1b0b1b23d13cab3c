// Text that a trained model writes.
#pragma once

#include <functional>
#include <string>

#include "gradus/gradus.h"

namespace gradus::examples {

struct WriteOptions {
  int64_t length = 500;     // characters
  std::string prompt = {};  // what goes before; "": the first of all characters
  double temperature = 1;   // below 1, likely characters come more often
};

// Draws characters one by one from the Context's generator. Returns them behind the prompt. `logits_of` is
// the model, in evaluation mode, which sees `context` characters: i64[1,T] -> [1,T,characters].
// Errors: ValueError for a prompt with characters that the model does not know.
std::string write_text(const std::function<Tensor(const Tensor&)>& logits_of, int64_t context,
                       const data::Characters& characters, const WriteOptions& options);

// Runs `gpt sample`: prints text. Returns the program's exit status.
int run_text_sample(int argc, char** argv);

}  // namespace gradus::examples
