// Text that a trained model writes.
#pragma once

#include <string>

#include "gradus/gradus.h"

namespace gradus::examples {

struct WriteOptions {
  int64_t length = 500;     // characters
  std::string prompt = {};  // what goes before; "": the first of all characters
  double temperature = 1;   // below 1, likely characters come more often
};

// Draws characters one by one from the Context's generator. Returns them behind the prompt.
// Errors: ValueError for a prompt with characters that the model does not know.
std::string write_text(models::GPT& net, const data::Characters& characters, const WriteOptions& options);

// Runs `gpt sample`: prints text. Returns the program's exit status.
int run_text_sample(int argc, char** argv);

}  // namespace gradus::examples
